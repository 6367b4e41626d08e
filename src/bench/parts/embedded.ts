/**
 * The model that ships with the package, as a user meets it: time to load, to the first token of a chat answer, and the
 * rate after it.
 *
 * Invariant: every round opens the model anew and asks it the same question, greedily; nothing is warm but the page cache.
 */
import { performance } from 'node:perf_hooks';
import { prepareChat } from '../../api/openai/chat.js';
import { resolveOptions } from '../../config.js';
import { PlumblineError } from '../../errors.js';
import { singleModel } from '../../http/model-specs.js';
import { openModel } from '../../http/open-model.js';
import type { GenerationUsage } from '../../schedule/request.js';
import { spread, type PartReport } from '../figures.js';
import type { BenchContext } from '../session.js';

const QUESTION = 'What does fs.readFileSync do?';
const MOST_TOKENS = 64;

export async function benchEmbedded(context: BenchContext, threads: number): Promise<PartReport> {
  const rounds = context.quick ? 1 : 5;
  const loads: number[] = [];
  const firsts: number[] = [];
  const rates: number[] = [];
  let prompt = 0;
  let bytes = 0;
  for (let round = 0; round < rounds; round++) {
    context.progress(`embedded model: round ${round + 1} of ${rounds}`);
    const start = performance.now();
    const options = { ...resolveOptions({ backend: context.backend, threads, parallel: 1, logLevel: 'silent' }) };
    const model = await openModel(singleModel(options), options, { signal: context.signal });
    loads.push(performance.now() - start);
    try {
      bytes = model.loaded.report.residentBytes;
      const { request } = prepareChat(
        {
          model: model.served.id,
          messages: [{ role: 'user', content: QUESTION }],
          temperature: 0,
          max_tokens: MOST_TOKENS,
        },
        {
          requestId: 'bench',
          signal: context.signal ?? new AbortController().signal,
          models: [model.served],
          now: Date.now(),
        },
      );
      const asked = performance.now();
      let usage: GenerationUsage | undefined;
      for await (const event of model.served.submit(request)) {
        if (event.type === 'token' && firsts.length === round) firsts.push(performance.now() - asked);
        if (event.type === 'finish') usage = event.usage;
      }
      if (usage === undefined) throw new PlumblineError('internal_error', 'a generation ended without a finish event');
      prompt = usage.promptTokens;
      if (usage.completionTokens > 1) rates.push((1000 * (usage.completionTokens - 1)) / usage.decodeMs);
    } finally {
      await model.close(0);
    }
  }
  return {
    part: 'embedded',
    figures: [
      { name: 'embedded model: load', unit: 'ms', value: spread(loads) },
      { name: 'embedded model: first token', unit: 'ms', value: spread(firsts) },
      { name: 'embedded model: decode', unit: 'tokens/s', value: spread(rates) },
    ],
    notes: [
      `a chat prompt of ${prompt} tokens, ${threads} threads; ${(bytes / 1e6).toFixed(0)} MB of weights, which lie in caches ` +
        'for the most part: the cost of many small ops, not bandwidth, is what bounds them',
    ],
  };
}
