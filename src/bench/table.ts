/**
 * Reports as a table for the terminal: value, spread, the bound beside it, the share, and whether a target is met.
 */
import type { Figure, PartReport, Spread } from './figures.js';

/** The lines of one report, without line ends. */
export function formatReport({ figures, notes }: PartReport): string[] {
  const rows = figures.map((figure) => [
    figure.name,
    `${number(figure.value.median)} ${figure.unit}`,
    range(figure.value),
    figure.bound === undefined ? '' : `of ${number(figure.bound.value.median)}`,
    figure.bound === undefined ? '' : share(figure.bound.share),
    verdict(figure),
  ]);
  const widths = COLUMNS.map((least, column) => Math.max(least, ...rows.map((row) => row[column]!.length)));
  const lines = rows.map((row) =>
    row
      .map((cell, column) =>
        column === 0 || column === 5 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!),
      )
      .join('  ')
      .trimEnd(),
  );
  const bounds = new Set(figures.flatMap(({ bound }) => (bound === undefined ? [] : [`bound: ${bound.what}`])));
  return [...lines, ...[...bounds, ...notes].map((note) => `    ${note}`)];
}

/** Widths that parts have in common, so that their columns stand below each other. */
const COLUMNS = [44, 16, 18, 12, 18, 0];

function verdict({ target }: Figure): string {
  return target === undefined ? '' : `${target.met ? 'ok' : 'MISSED'}: ${target.text}`;
}

function range({ min, max, rounds }: Spread): string {
  return rounds === 1 ? '' : `[${number(min)} .. ${number(max)}]`;
}

function share({ median, min, max, rounds }: Spread): string {
  const percent = (value: number): string => (100 * value).toFixed(0);
  return rounds === 1 ? `${percent(median)} %` : `${percent(median)} % [${percent(min)} .. ${percent(max)}]`;
}

/** Three digits or a little more. */
function number(value: number): string {
  if (Math.abs(value) >= 100) return value.toFixed(0);
  return Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
}
