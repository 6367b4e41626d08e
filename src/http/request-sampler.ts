/**
 * The sampler of a request: settings out of everybody's wishes, and the law that its speculation asks for.
 */
import type { Options } from '../config.js';
import type { LoadedModel } from '../families/load.js';
import { speculationObstacle, type SpeculationSettings } from '../generate/choose-sequence.js';
import { resolveSampling } from '../sample/resolve-sampling.js';
import { createSampler, createSpeculativeSampler, samplingRules, type RequestSampler } from '../sample/sampler.js';
import type { SpeculativeSampler } from '../sample/speculation.js';
import type { RowContext } from '../sample/validity.js';
import type { TokenSequence } from '../generate/sequence.js';
import type { GenerationRequest } from '../schedule/request.js';

/** May change a row of logits in place, where the engine hands it to the validity check. */
export type RowHook = (row: Float32Array, context: RowContext, request: GenerationRequest) => void;

export function speculationSettings(options: Options): SpeculationSettings {
  return {
    draftDepth: options.draftDepth,
    depthPolicy: options.depthPolicy,
    contextCopy: options.contextCopy === 'on',
  };
}

/** Why a request that asks for speculation will be decoded plainly; undefined when it will not, or did not ask. */
export function declinedSpeculation(
  request: GenerationRequest,
  { model }: LoadedModel,
  options: Options,
): string | undefined {
  if ((request.speculation ?? options.speculation) === 'off') return undefined;
  return speculationObstacle(model, speculationSettings(options));
}

/** @throws invalid_request for sampling fields that no source may set so, config_unsupported for an unknown law */
export function samplerOf(
  request: GenerationRequest,
  loaded: LoadedModel,
  options: Options,
  tokenizerSize: number,
  rowHook: RowHook | undefined,
): RequestSampler {
  const { model, generation } = loaded;
  const settings = resolveSampling(
    {
      request: request.sampling,
      serverFlags: options,
      generationConfig: generation,
      familyDefaults: model.laws.samplingDefaults,
      thinking: request.thinking,
    },
    samplingRules(model.laws.sampler),
  );
  const samplerOptions = {
    vocabSize: model.vocabSize,
    tokenizerSize,
    rowDtype: model.activationLaw.startsWith('bf16') ? ('bf16' as const) : ('f32' as const),
    topLogprobs: request.topLogprobs,
    guide: request.guide,
  };
  const acceptance = request.speculation ?? options.speculation;
  if (acceptance === 'off' || declinedSpeculation(request, loaded, options) !== undefined) {
    const plain = createSampler(model.laws.sampler, settings, samplerOptions);
    return rowHook ? hookedSampler(plain, request, rowHook) : plain;
  }
  const sampler = createSpeculativeSampler(model.laws.sampler, settings, { ...samplerOptions, acceptance });
  return rowHook ? hookedSpeculative(sampler, request, rowHook) : sampler;
}

function hookedSampler(sampler: RequestSampler, request: GenerationRequest, hook: RowHook): RequestSampler {
  return {
    seed: sampler.seed,
    next(row, context) {
      hook(row, context, request);
      return sampler.next(row, context);
    },
    check: (row, context) => sampler.check(row, context),
    get warning() {
      return sampler.warning;
    },
    get randomState() {
      return sampler.randomState;
    },
  };
}

function hookedSpeculative(sampler: SpeculativeSampler, request: GenerationRequest, hook: RowHook): SpeculativeSampler {
  const plain = hookedSampler(sampler, request, hook);
  return {
    seed: plain.seed,
    next: (row, context) => plain.next(row, context),
    check: (row, context) => sampler.check(row, context),
    get warning() {
      return sampler.warning;
    },
    get randomState() {
      return sampler.randomState;
    },
    greedy: sampler.greedy,
    acceptance: sampler.acceptance,
    penalised: sampler.penalised,
    greedyDrafts: sampler.greedyDrafts,
    draft(row, context) {
      hook(row, context, request);
      return sampler.draft(row, context);
    },
    accept: (window) =>
      sampler.accept({
        ...window,
        row: (index) => {
          const row = window.row(index);
          const site = index === window.drafts.length ? 'bonus' : 'verify';
          hook(row, { ...window.context, site, step: window.context.step + index }, request);
          return row;
        },
      }),
  };
}

/** The row of a closing forward decides nothing, so no sampler sees it. */
export function hookedClosing(sequence: TokenSequence, request: GenerationRequest, hook: RowHook): TokenSequence {
  let tokens = 0;
  let ended = false;
  return {
    get work() {
      return sequence.work;
    },
    get speculation() {
      return sequence.speculation;
    },
    cachedTokens: sequence.cachedTokens,
    take(result) {
      const work = sequence.work;
      if (ended && work?.kind === 'forward' && result.kind === 'forward') {
        const site = work.phase === 'final-primary' ? 'final_primary' : 'closing_forward';
        for (const row of result.result.logits) hook(row, { site, phase: work.phase, step: tokens }, request);
      }
      const steps = sequence.take(result);
      for (const step of steps) {
        if (step.kind !== 'token') continue;
        tokens++;
        ended ||= step.end !== undefined;
      }
      return steps;
    },
    stop: () => sequence.stop(),
    release: () => sequence.release(),
  };
}
