/**
 * `strftime_now` of chat templates: Python's strftime in the C locale, in local time.
 *
 * Invariant: month and day names are English whatever the machine's locale, so that a prompt depends on the date alone.
 * An unknown directive stays as it is written.
 */

const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

const pad = (value: number, length = 2): string => String(value).padStart(length, '0');

function dayOfYear(date: Date): number {
  const midnight = (year: number, month: number, day: number) => Date.UTC(year, month, day);
  return (
    1 +
    (midnight(date.getFullYear(), date.getMonth(), date.getDate()) - midnight(date.getFullYear(), 0, 1)) / 86_400_000
  );
}

const DIRECTIVES: Readonly<Record<string, (date: Date) => string>> = {
  Y: (date) => String(date.getFullYear()),
  y: (date) => pad(date.getFullYear() % 100),
  m: (date) => pad(date.getMonth() + 1),
  d: (date) => pad(date.getDate()),
  e: (date) => String(date.getDate()).padStart(2, ' '),
  j: (date) => pad(dayOfYear(date), 3),
  B: (date) => MONTHS[date.getMonth()] ?? '',
  b: (date) => (MONTHS[date.getMonth()] ?? '').slice(0, 3),
  A: (date) => DAYS[date.getDay()] ?? '',
  a: (date) => (DAYS[date.getDay()] ?? '').slice(0, 3),
  H: (date) => pad(date.getHours()),
  I: (date) => pad(date.getHours() % 12 || 12),
  M: (date) => pad(date.getMinutes()),
  S: (date) => pad(date.getSeconds()),
  p: (date) => (date.getHours() < 12 ? 'AM' : 'PM'),
  '%': () => '%',
};

/** @param format such as `%d %b %Y`. */
export function strftime(date: Date, format: string): string {
  return format.replace(/%(.)/gs, (directive, letter: string) => DIRECTIVES[letter]?.(date) ?? directive);
}
