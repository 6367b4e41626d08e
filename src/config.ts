/**
 * The options of a server and of the commands, in one table: flag, environment variable, what is allowed, default, help.
 * Command line, environment and library callers all go through it, so each rule stands in one place.
 *
 * Invariants: a flag wins over the environment, the environment over the default; a bad value is `invalid_option` and
 * names the flag and what is allowed; `undefined` means that whoever uses the value has its own default, which the help
 * text tells.
 */
import { PlumblineError } from './errors.js';

/** What an option may hold, and how text becomes it. */
export interface Kind<T> {
  /** Completes "must be …". */
  readonly rule: string;
  isValid(value: unknown): value is T;
  /** undefined when the text is not of this kind. */
  fromText(text: string): T | undefined;
  /** Whether the flag may be given again, to add to what it gave before. */
  readonly collects?: boolean;
}

const number = (low: number, high: number): Kind<number> => ({
  rule: `a number from ${low} to ${high}`,
  isValid: (value): value is number => typeof value === 'number' && value >= low && value <= high,
  fromText: (text) => (/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : undefined),
});

const integer = (low: number, high: number): Kind<number> => ({
  rule: high === Number.MAX_SAFE_INTEGER ? `an integer of at least ${low}` : `an integer from ${low} to ${high}`,
  isValid: (value): value is number =>
    Number.isSafeInteger(value) && (value as number) >= low && (value as number) <= high,
  fromText: (text) => (/^[+-]?\d+$/.test(text) ? Number(text) : undefined),
});

const choice = <const Names extends readonly string[]>(...names: Names): Kind<Names[number]> => ({
  rule: `one of ${names.join(', ')}`,
  isValid: (value): value is Names[number] => names.includes(value as string),
  fromText: (text) => names.find((name) => name === text),
});

const text = (what: string): Kind<string> => ({
  rule: what,
  isValid: (value): value is string => typeof value === 'string' && value !== '',
  fromText: (given) => given,
});

/** Several values: the flag is repeated, the environment variable separated by commas. */
const list = (what: string): Kind<readonly string[]> => ({
  rule: `a list of ${what}`,
  isValid: (value): value is readonly string[] =>
    Array.isArray(value) && value.every((item) => typeof item === 'string' && item !== ''),
  fromText: (given) => given.split(',').map((item) => item.trim()),
});

/** Checkpoint folders: the flag is repeated, the variable separated by commas; a library may give a single text. */
const folders: Kind<string | readonly string[]> = {
  rule: 'a checkpoint folder, or name=folder',
  isValid: (value): value is string | readonly string[] => {
    const items: readonly unknown[] = Array.isArray(value) ? value : [value];
    return items.length > 0 && items.every((item) => typeof item === 'string' && /^(?:[^=/]+=)?[^=]/.test(item));
  },
  fromText: (given) => given.split(',').map((item) => item.trim()),
  collects: true,
};

const seed: Kind<bigint> = {
  rule: 'an integer from 0 to 18446744073709551615',
  isValid: (value): value is bigint => typeof value === 'bigint' && value >= 0n && value < 2n ** 64n,
  fromText: (given) => (/^\d{1,20}$/.test(given) ? BigInt(given) : undefined),
};

const flag: Kind<boolean> = {
  rule: 'true or false',
  isValid: (value): value is boolean => typeof value === 'boolean',
  fromText: (given) =>
    given === 'true' || given === '1' ? true : given === 'false' || given === '0' ? false : undefined,
};

export interface OptionRow<T> {
  /** As commander reads it. */
  readonly flag: string;
  readonly env: string;
  readonly kind: Kind<T>;
  readonly default: T | undefined;
  readonly help: string;
}

const row = <T>(flag: string, kind: Kind<T>, help: string): OptionRow<T> & { readonly default: undefined } => ({
  flag,
  env: envName(flag),
  kind,
  default: undefined,
  help,
});
const rowWithDefault = <T>(flag: string, kind: Kind<T>, value: NoInfer<T>, help: string) => ({
  ...row(flag, kind, help),
  default: value,
});

/** `--max-queue <n>` reads PLUMBLINE_MAX_QUEUE. */
function envName(flag: string): string {
  const name = /--([a-z-]+)/.exec(flag)?.[1] ?? '';
  return `PLUMBLINE_${name.replaceAll('-', '_').toUpperCase()}`;
}

const MOST = Number.MAX_SAFE_INTEGER;

export const OPTIONS = {
  // ---- model and machine ----
  model: row(
    '--model <dir>',
    folders,
    'checkpoint folder, or name=folder; given again, one more model is served (default: the embedded model)',
  ),
  modelId: row(
    '--model-id <name>',
    text('a name'),
    'name of a single model in API answers (default: the name of the folder)',
  ),
  backend: rowWithDefault(
    '--backend <name>',
    choice('auto', 'cpu', 'wasm', 'reference'),
    'auto',
    'what computes: the native addon, WebAssembly, or the slow reference',
  ),
  threads: row('--threads <n>', integer(1, 1024), 'threads of the backend (default: the processors of this machine)'),
  dtype: rowWithDefault(
    '--dtype <law>',
    choice('auto', 'f32', 'bf16', 'bf16-mtplx'),
    'auto',
    'activation law: where values are rounded to bfloat16',
  ),
  context: row(
    '--context <tokens>',
    integer(16, 2 ** 24),
    'longest prompt and answer together (default: what the model allows, at most 32768)',
  ),
  parallel: rowWithDefault('--parallel <n>', integer(1, 64), 4, 'requests that run at the same time'),
  maxQueue: rowWithDefault(
    '--max-queue <n>',
    integer(0, 100_000),
    64,
    'requests that may wait; more are refused with 503',
  ),
  prefillChunk: rowWithDefault(
    '--prefill-chunk <tokens>',
    integer(1, 4096),
    512,
    'prompt tokens that are computed in one step; does not change results',
  ),
  // ---- speculation ----
  speculation: rowWithDefault(
    '--speculation <mode>',
    choice('off', 'plain', 'block', 'coupled'),
    'off',
    'when a request does not say: guess tokens with the draft head and verify them; coupled gives the text of off',
  ),
  draftDepth: rowWithDefault('--draft-depth <n>', integer(0, 3), 3, 'most tokens that the draft head guesses a round'),
  depthPolicy: rowWithDefault(
    '--depth-policy <name>',
    choice('off', 'expected-value', 'position-average', 'streak', 'cost'),
    'off',
    'how the depth follows what was accepted; off: always the same',
  ),
  contextCopy: rowWithDefault(
    '--context-copy <state>',
    choice('on', 'off'),
    'on',
    'whether speculation also proposes what followed the same words in the prompt',
  ),
  gatePolicy: rowWithDefault(
    '--gate-policy <name>',
    choice('strict', 'mtplx', 'uniform'),
    'strict',
    'which gates are lowered otherwise in verify forwards; uniform: none, so that speculation cannot change a bit',
  ),
  // ---- sessions ----
  sessions: rowWithDefault(
    '--sessions <state>',
    choice('on', 'off'),
    'on',
    'whether the state of conversations is kept, so that a later turn computes only what is new',
  ),
  sessionRamMib: row(
    '--session-ram-mib <n>',
    integer(0, 2 ** 30),
    'memory for kept states (default: a quarter of what is left, at most 2048)',
  ),
  sessionDir: row(
    '--session-dir <dir>',
    text('a folder'),
    'folder for kept states, so that they outlive the server (default: none, memory alone)',
  ),
  sessionDiskMib: rowWithDefault(
    '--session-disk-mib <n>',
    integer(1, 2 ** 30),
    20_480,
    'most that the folder may hold',
  ),
  sessionMinFreeMib: rowWithDefault(
    '--session-min-free-mib <n>',
    integer(0, 2 ** 30),
    2048,
    'what must stay free on its disk',
  ),
  sessionWriteMibS: rowWithDefault(
    '--session-write-mib-s <n>',
    integer(0, 2 ** 20),
    0,
    'most that is written a second, over a while; 0: no limit',
  ),
  // ---- defaults of requests ----
  temperature: row(
    '--temperature <x>',
    number(0, 2),
    'when a request does not say (default: the checkpoint, then the family)',
  ),
  topP: row('--top-p <x>', number(0, 1), 'when a request does not say (default as above)'),
  topK: row('--top-k <n>', integer(0, 2 ** 31 - 1), 'when a request does not say (default as above; 0: off)'),
  seed: row('--seed <n>', seed, 'of requests that do not say (default: a fresh one each)'),
  maxTokens: row(
    '--max-tokens <n>',
    integer(1, 2 ** 31 - 1),
    'of an answer when a request does not say (default: what the context holds)',
  ),
  // ---- network ----
  host: rowWithDefault('--host <address>', text('an address'), '127.0.0.1', 'address to listen on'),
  port: rowWithDefault('--port <n>', integer(0, 65_535), 8080, 'port to listen on; 0 takes any free one'),
  apiKey: row(
    '--api-key <key>',
    text('a non-empty key'),
    'key that every request must carry; better given in the environment, where other users cannot see it',
  ),
  corsOrigin: rowWithDefault(
    '--cors-origin <origin...>',
    list('origins'),
    [],
    'browser origins that may call the server; * for every page',
  ),
  allowedHost: rowWithDefault(
    '--allowed-host <name...>',
    list('host names'),
    [],
    'further names by which the server may be called',
  ),
  maxBodyMib: rowWithDefault('--max-body-mib <n>', number(0.001, 1024), 32, 'largest request body'),
  requestTimeoutS: rowWithDefault(
    '--request-timeout-s <n>',
    number(0, MOST),
    0,
    'longest time of a request, waiting included; 0: no limit',
  ),
  shutdownTimeoutS: rowWithDefault(
    '--shutdown-timeout-s <n>',
    number(0, 86_400),
    10,
    'time that running requests get when the server stops',
  ),
  keepAliveS: rowWithDefault(
    '--keep-alive-s <n>',
    number(0, 3600),
    10,
    'longest silence of a stream before a comment is sent; 0: no comments',
  ),
  // ---- limits of a supervised command ----
  memoryMib: rowWithDefault(
    '--memory-mib <n>',
    number(0, 2 ** 33),
    0,
    'most memory that the command and its descendants may hold together; 0: no limit',
  ),
  idleS: rowWithDefault(
    '--idle-s <n>',
    number(0, MOST),
    0,
    'longest time without output of the command on stdout or stderr; 0: no limit',
  ),
  totalS: rowWithDefault('--total-s <n>', number(0, MOST), 0, 'longest time of the command; 0: no limit'),
  graceS: rowWithDefault('--grace-s <n>', number(0, 3600), 5, 'time between the SIGTERM and the SIGKILL that end it'),
  report: row('--report <file>', text('a file name'), 'file for the report of the run, as one JSON object'),
  // ---- output ----
  logLevel: rowWithDefault(
    '--log-level <level>',
    choice('silent', 'error', 'warn', 'info', 'debug'),
    'info',
    'how much is logged, to stderr',
  ),
  json: rowWithDefault('--json', flag, false, 'output for machines: one JSON object a line'),
} as const;

export type OptionName = keyof typeof OPTIONS;
type ValueOf<Name extends OptionName> = (typeof OPTIONS)[Name] extends {
  readonly kind: Kind<infer T>;
  readonly default: infer D;
}
  ? T | (D extends undefined ? undefined : never)
  : never;

/** All options, checked, with defaults. */
export type Options = { readonly [Name in OptionName]: ValueOf<Name> };
/** What a caller sets; the rest takes its default. */
export type GivenOptions = { readonly [Name in OptionName]?: ValueOf<Name> | undefined };

export const OPTION_NAMES = Object.keys(OPTIONS) as readonly OptionName[];

function refuse(name: OptionName, source: string): never {
  throw new PlumblineError('invalid_option', `${source} must be ${OPTIONS[name].kind.rule}`, { param: source });
}

/** The flag without what follows it: `--max-queue`. */
export function flagOf(name: OptionName): string {
  return OPTIONS[name].flag.split(' ')[0] ?? '';
}

/** Text from a flag or a variable as the option's value. Throws `invalid_option`. @param source named in the error. */
export function parseOption(name: OptionName, given: string | readonly string[], source = flagOf(name)): unknown {
  const kind: Kind<unknown> = OPTIONS[name].kind;
  const value = typeof given === 'string' ? kind.fromText(given) : given;
  return kind.isValid(value) ? value : refuse(name, source);
}

/** What the environment sets. Throws `invalid_option`. */
export function optionsFromEnvironment(environment: Readonly<Record<string, string | undefined>>): GivenOptions {
  const given = OPTION_NAMES.flatMap((name) => {
    const { env } = OPTIONS[name];
    const value = environment[env];
    return value === undefined || value === '' ? [] : [[name, parseOption(name, value, env)] as const];
  });
  return Object.fromEntries(given);
}

/** Checks what was given and fills in the defaults. Throws `invalid_option`. */
export function resolveOptions(given: GivenOptions): Options {
  const entries = OPTION_NAMES.map((name) => {
    const { kind, default: fallback }: { kind: Kind<unknown>; default: unknown } = OPTIONS[name];
    const value = given[name];
    if (value === undefined) return [name, fallback] as const;
    if (!kind.isValid(value)) refuse(name, flagOf(name));
    return [name, value] as const;
  });
  return Object.fromEntries(entries) as Options;
}
