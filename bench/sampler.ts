/**
 * What one sampled token costs on the host at a real vocabulary size: npm run bench -- sampler [vocab] [steps]
 *
 * Rows look like a model's: normal noise with a few confident tokens. One generator seed, so runs compare.
 */
import { Pcg64 } from '../src/sample/rng/pcg64.js';
import { resolveSampling } from '../src/sample/resolve-sampling.js';
import { createSampler, samplingRules } from '../src/sample/sampler.js';

const vocabSize = Number(process.argv[2] ?? 248320);
const steps = Number(process.argv[3] ?? 40);

function rows(count: number): Float32Array[] {
  const random = new Pcg64(1n);
  const normal = (): number =>
    Math.sqrt(-2 * Math.log(1 - random.nextDouble())) * Math.cos(2 * Math.PI * random.nextDouble());
  return Array.from({ length: count }, () => {
    const row = Float32Array.from({ length: vocabSize }, () => 2.5 * normal());
    for (let i = 0; i < 20; i++) row[Math.floor(random.nextDouble() * vocabSize)] = 14 + 3 * normal();
    return row;
  });
}

const CASES = [
  { name: 'greedy', temperature: 0 },
  { name: 'T 1, top_p 0.95, top_k 20', temperature: 1 },
  { name: 'T 0.6, top_p 0.95, top_k 20, presence 1', temperature: 0.6, presencePenalty: 1 },
  { name: 'T 1, top_p 0.95', temperature: 1, topK: 0 },
  { name: 'T 1, top_k 2000', temperature: 1, topP: 1, topK: 2000 },
  { name: 'T 1, no filter', temperature: 1, topP: 1, topK: 0 },
  { name: 'T 100 (flat), top_p 0.95', temperature: 100, topK: 0 },
];

const sample = rows(4);
for (const { name, ...wishes } of CASES) {
  for (const topLogprobs of name === 'greedy' ? [undefined, 20] : [undefined]) {
    const settings = resolveSampling(
      {
        request: { ...wishes, seed: 7n },
        serverFlags: {},
        generationConfig: {},
        familyDefaults: { temperature: 1, topP: 0.95, topK: 20 },
      },
      samplingRules('mtplx'),
    );
    const sampler = createSampler('mtplx', settings, { vocabSize, topLogprobs });
    const next = (step: number): void =>
      void sampler.next(sample[step % sample.length]!, { site: 'bench', phase: 'decode', step });
    for (let step = 0; step < 4; step++) next(step);
    const started = process.cpuUsage();
    for (let step = 0; step < steps; step++) next(step);
    const used = process.cpuUsage(started);
    const each = (used.user + used.system) / 1000 / steps; // CPU time: other work on the machine must not count
    console.log(
      `${each.toFixed(2).padStart(8)} ms/token  V ${vocabSize}  ${name}${topLogprobs === undefined ? '' : `, top_logprobs ${topLogprobs}`}`,
    );
  }
}
