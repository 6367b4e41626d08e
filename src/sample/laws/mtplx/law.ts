/** The MTPLX sampler law, as the registry of laws hands it out. */
import { randomInt } from 'node:crypto';
import type { SamplerLaw } from '../../sampler.js';
import type { SamplingRules } from '../../sampling-rules.js';
import { MTPLX } from './constants.js';
import { MtplxSampler } from './request-sampler.js';
import { MtplxSpeculativeSampler } from './speculative-sampler.js';

const rules: SamplingRules = {
  get defaults() {
    return { ...MTPLX.defaults, minP: 0, presencePenalty: 0, frequencyPenalty: 0 };
  },
  minP: false,
  penalties: true,
  topK: 'integer',
  seedZero: 'seed',
  freshSeed: () => BigInt(randomInt(MTPLX.freshSeeds)),
  get leastTemperature() {
    return MTPLX.leastTemperature;
  },
  generationConfig: true,
  ownDefaultsWhenThinking: false,
};

export const mtplxLaw: SamplerLaw = {
  name: 'mtplx',
  rules,
  create: (settings, options) => new MtplxSampler(settings, options),
  createSpeculative: (settings, options) => new MtplxSpeculativeSampler(settings, options),
};
