/** The census of a row of logits on the wire, in errors and in warnings. */
import type { LogitsCensus } from '../../errors.js';

export interface WireCensus {
  readonly site: string;
  readonly phase: string;
  readonly step: number;
  readonly nan: number;
  readonly inf: number;
  readonly vocab: number;
}

export function wireCensus({ site, phase, step, nanCount, infCount, vocabSize }: LogitsCensus): WireCensus {
  return { site, phase, step, nan: nanCount, inf: infCount, vocab: vocabSize };
}
