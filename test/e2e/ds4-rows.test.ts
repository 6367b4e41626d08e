/**
 * Rows of logits that are no numbers, planted where the engine hands a row to the sampler, through HTTP: under the ds4 law
 * they give that law's token, the answer is a plain 200 and says what was seen; the same rows on another family's model in
 * the same server are errors.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { TestSeams } from '../../src/http/open-model.js';
import { createSampler, samplingRules } from '../../src/sample/sampler.js';
import { readEvents } from '../support/http-app.js';
import {
  DS4_MODELS,
  threeFamilies,
  VOCABULARY,
  type ThreeFamilies,
  type TinyModel,
} from '../support/three-families.js';
import { invalidRows, type InvalidRow } from '../support/invalid-rows.js';

const PLANTS = invalidRows(VOCABULARY);

let planted: { readonly fill: InvalidRow['fill']; readonly step: number } | undefined;
const rowHook: TestSeams['rowHook'] = (row, { step }) => {
  assert.equal(row.length, VOCABULARY);
  if (planted?.step === step) planted.fill(row);
};

let server: ThreeFamilies;
before(async () => {
  server = await threeFamilies(undefined, { rowHook });
});
after(async () => server.end());

const SETTINGS = [
  { temperature: 0 },
  { temperature: 1 },
  { temperature: 0.6, top_p: 0.95 },
  { temperature: 1, top_k: 2, min_p: 0 },
] as const;

interface Body {
  readonly choices: readonly {
    readonly message: { readonly content: string };
    readonly logprobs: { readonly content: readonly { readonly bytes: readonly number[] }[] };
  }[];
  readonly usage: { readonly completion_tokens: number };
  readonly plumbline: {
    readonly seed: string;
    readonly stop_match: unknown;
    readonly logits_warning?: { readonly rows: number; readonly first: object };
  };
}

const ask = (model: TinyModel, more: object = {}): object => ({
  ...{ model, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 5, seed: 12_345, logprobs: true, think: false },
  ...more,
});

async function answer(body: object): Promise<Body> {
  const response = await server.post('/v1/chat/completions', body);
  assert.equal(response.status, 200);
  return (await response.json()) as Body;
}

/** The token that the law takes from a planted first row. */
function lawToken({ fill }: InvalidRow, settings: Record<string, number>): number {
  const row = new Float32Array(VOCABULARY);
  fill(row);
  const { temperature = 1, top_p: topP = 1, top_k: topK = 0, min_p: minP = 0.05 } = settings;
  const law = createSampler(
    'ds4',
    { ...samplingRules('ds4').defaults, temperature, topP, topK, minP, seed: 12_345n },
    { vocabSize: VOCABULARY },
  );
  return law.next(row, { site: 'prefill_frontier', phase: 'prefill', step: 0 }).tokenId;
}

for (const model of DS4_MODELS) {
  for (const plant of PLANTS) {
    test(`${model}, ${plant.name}: 200, the token of the law, and the warning, streamed or not`, async () => {
      for (const settings of SETTINGS) {
        planted = undefined;
        const healthy = await answer(ask(model, settings));
        assert.equal('logits_warning' in healthy.plumbline, false);
        for (const step of [0, 2]) {
          planted = { fill: plant.fill, step };
          const broken = await answer(ask(model, settings));
          const reached = broken.usage.completion_tokens > step;
          if (!reached) continue; // the answer was over before
          const site = step === 0 ? 'prefill_frontier' : 'ar_step';
          const phase = step === 0 ? 'prefill' : 'decode';
          const first = { site, phase, step, nan: plant.nan, inf: plant.inf, vocab: VOCABULARY };
          assert.deepEqual(broken.plumbline.logits_warning, { rows: 1, first });
          if (step === 0) assertFirstToken(broken, lawToken(plant, settings), model);
          const streamed = await readEvents(
            await server.post('/v1/chat/completions', ask(model, { ...settings, stream: true })),
          );
          assert.equal(streamed.done, true);
          const last = streamed.events.at(-1) as Body;
          assert.deepEqual(last.plumbline.logits_warning, { rows: 1, first });
        }
        planted = undefined;
        const again = await answer(ask(model, settings));
        assert.deepEqual(again.choices, healthy.choices, 'the next request is as before');
      }
    });
  }
}

function assertFirstToken({ choices, usage, plumbline }: Body, token: number, model: TinyModel): void {
  const served = server.models.find(({ served: { id } }) => id === model)!.served;
  if (served.stopTokenIds.includes(token)) {
    assert.deepEqual([usage.completion_tokens, plumbline.stop_match], [1, token]);
    return;
  }
  assert.deepEqual(choices[0]?.logprobs.content[0]?.bytes, Array.from(served.tokenBytes(token) ?? []));
}

test('the same rows on a model of another family are errors, in the same server', async () => {
  for (const { fill } of PLANTS) {
    for (const settings of SETTINGS) {
      const { min_p: _, ...known } = { min_p: 0, ...settings };
      planted = { fill, step: 0 };
      const response = await server.post('/v1/chat/completions', ask('qwen', known));
      const { error } = (await response.json()) as { error: { code: string } };
      assert.deepEqual([response.status, error.code], [500, 'non_finite_logits']);
    }
  }
  planted = undefined;
});

test('what was observed is counted, by family', async () => {
  planted = { fill: (row) => row.fill(NaN, 5, 6), step: 1 };
  const count = async (): Promise<number> => {
    const text = await (await fetch(`${server.url}/metrics`)).text();
    const found = /plumbline_observed_non_finite_rows_total\{family="deepseek_v4",model="deepseek"\} (\d+)/.exec(text);
    return Number(found?.[1] ?? 0);
  };
  const earlier = await count();
  await answer(ask('deepseek', { temperature: 0 }));
  assert.equal(await count(), earlier + 1);
  planted = undefined;
});
