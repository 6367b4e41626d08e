/** The MTPLX sampler law, as the registry of laws hands it out. */
import type { SamplerLaw } from '../../sampler.js';
import { MtplxSampler } from './request-sampler.js';
import { MtplxSpeculativeSampler } from './speculative-sampler.js';

export const mtplxLaw: SamplerLaw = {
  name: 'mtplx',
  create: (settings, options) => new MtplxSampler(settings, options),
  createSpeculative: (settings, options) => new MtplxSpeculativeSampler(settings, options),
};
