/** The DS4 sampler law, as the registry of laws hands it out. */
import { randomInt } from 'node:crypto';
import type { SamplerLaw } from '../../sampler.js';
import type { SamplingRules } from '../../sampling-rules.js';
import { DS4 } from './constants.js';
import { Ds4Sampler, Ds4SpeculativeSampler } from './request-sampler.js';

/** randomInt goes no higher. */
const SEEDS = 2 ** 48 - 1;

const rules: SamplingRules = {
  get defaults() {
    return { ...DS4.defaults, presencePenalty: 0, frequencyPenalty: 0 };
  },
  minP: true,
  penalties: false,
  topK: 'truncated',
  seedZero: 'unset',
  // Never 0, which would say that there is none when the seed is sent again.
  freshSeed: () => BigInt(randomInt(1, SEEDS)),
  leastTemperature: 0,
  generationConfig: false,
  ownDefaultsWhenThinking: true,
};

export const ds4Law: SamplerLaw = {
  name: 'ds4',
  rules,
  create: (settings, options) => new Ds4Sampler(settings, options, DS4),
  createSpeculative: (settings, options) => new Ds4SpeculativeSampler(settings, options, DS4),
};
