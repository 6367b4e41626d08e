/**
 * When the sampler's settings act. Temperature at or below zero is greedy; top_k acts for 0 < k < V, top_p for 0 < p < 1;
 * any other value turns the filter off.
 *
 * The lane follows from the settings alone, never from the row: `greedy` (T <= 0), `sparse` (T > 0, top_k > 0),
 * `dense` (T > 0, top_k off). Lanes differ in where penalties round and in how often a distribution is normalised.
 */

export interface Filters {
  readonly temperature: number;
  readonly topP: number;
  readonly topK: number;
}

export type Lane = 'greedy' | 'sparse' | 'dense';

export function laneOf(filters: Filters): Lane {
  if (filters.temperature <= 0) return 'greedy';
  return filters.topK > 0 ? 'sparse' : 'dense';
}

/** The k that acts on a row of `vocabSize`, or undefined. */
export function activeTopK(filters: Filters, vocabSize: number): number | undefined {
  return filters.topK > 0 && filters.topK < vocabSize ? filters.topK : undefined;
}

/** The p that acts, or undefined. */
export function activeTopP(filters: Filters): number | undefined {
  return filters.topP > 0 && filters.topP < 1 ? filters.topP : undefined;
}
