/**
 * Counts comparisons and remembers the first that failed. Exact comparisons are exact; a tolerance is always named at the
 * place that compares.
 */

export interface FixtureFailure {
  /** 1-based line of the file; 0 for a file that is one table. */
  readonly line: number;
  readonly message: string;
}

const MOST_KEPT = 20;

export class Checker {
  checks = 0;
  failureCount = 0;
  /** The first 20 failures. */
  readonly failures: FixtureFailure[] = [];
  line = 0;

  fail(message: string): void {
    this.failureCount++;
    if (this.failures.length < MOST_KEPT) this.failures.push({ line: this.line, message });
  }

  that(condition: boolean, message: () => string): void {
    this.checks++;
    if (!condition) this.fail(message());
  }

  equal(what: string, got: unknown, want: unknown): void {
    this.that(Object.is(got, want), () => `${what}: got ${String(got)}, expected ${String(want)}`);
  }

  /** Element by element, exactly. */
  sequence(what: string, got: ArrayLike<unknown>, want: ArrayLike<unknown>): void {
    const at = got.length === want.length ? Array.from(want).findIndex((value, i) => !Object.is(value, got[i])) : -2;
    this.that(at === -1, () =>
      at === -2
        ? `${what}: got ${got.length} entries, expected ${want.length}`
        : `${what}[${at}]: got ${String(got[at])}, expected ${String(want[at])}`,
    );
  }

  /** |got - want| <= relative * |want| + absolute, element by element; NaN equals NaN. One check an element. */
  close(what: string, got: ArrayLike<number>, want: ArrayLike<number>, relative: number, absolute = 0): void {
    if (got.length !== want.length) {
      this.that(false, () => `${what}: got ${got.length} entries, expected ${want.length}`);
      return;
    }
    for (let i = 0; i < want.length; i++) {
      const a = got[i]!;
      const b = want[i]!;
      const fits = Object.is(a, b) || a === b || Math.abs(a - b) <= relative * Math.abs(b) + absolute;
      this.that(fits, () => `${what}[${i}]: got ${a}, expected ${b}`);
    }
  }
}
