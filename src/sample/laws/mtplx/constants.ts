/**
 * The numbers of the MTPLX law that a request can meet, in one value, read at the moment of use; nothing outside this
 * law reads them, which a test holds by changing each in turn.
 */
export interface MtplxConstants {
  /** Penalties act within plus and minus this. */
  readonly mostPenalty: number;
  /** Every float32 logit divided by it is finite in float64, so a client's number cannot make a row look broken. */
  readonly leastTemperature: number;
  /** Fresh seeds are below it. */
  readonly freshSeeds: number;
  /** What the sampler uses for a model whose family says nothing. */
  readonly defaults: { readonly temperature: number; readonly topP: number; readonly topK: number };
}

export const MTPLX: MtplxConstants = {
  mostPenalty: 2,
  leastTemperature: 1e-200,
  freshSeeds: 2 ** 31 - 1,
  defaults: { temperature: 0.6, topP: 0.95, topK: 20 },
};
