/**
 * Invalid rows inside speculative rounds, through HTTP: whichever row is reached, the target's, the draft head's or the
 * bonus row, the answer is an error with the census and no token of the round; a row that is not reached does no harm.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { TestSeams } from '../../src/http/open-model.js';
import { embeddedServer, MODEL, type EmbeddedServer } from '../support/embedded-server.js';
import { readEvents } from '../support/http-app.js';

const PLANTS = [
  { name: 'NaN', fill: (row: Float32Array) => row.fill(NaN, 7, 8), nan: 1, inf: 0 },
  { name: '+infinity', fill: (row: Float32Array) => row.fill(Infinity, 7, 8), nan: 0, inf: 1 },
  { name: 'all -infinity', fill: (row: Float32Array) => row.fill(-Infinity), nan: 0, inf: 4096 },
] as const;

/** The nth row that is handed over at a site, from 0. */
interface Target {
  readonly site: string;
  readonly nth: number;
}

let planted: (Target & { readonly fill: (row: Float32Array) => void }) | undefined;
let seen: { readonly site: string; readonly step: number }[] = [];
const rowHook: TestSeams['rowHook'] = (row, { site, step }) => {
  const nth = seen.filter((entry) => entry.site === site).length;
  seen.push({ site, step });
  if (planted?.site === site && planted.nth === nth) planted.fill(row);
};

const ask = (more: object) => ({
  model: MODEL,
  messages: [{ role: 'user', content: 'What does fs.readFile do?' }],
  max_tokens: 24,
  seed: 5,
  ...more,
});

interface Answer {
  readonly error?: {
    readonly code: string;
    readonly plumbline: { readonly census: Readonly<Record<string, unknown>> };
  };
  readonly choices?: readonly { readonly message: { readonly content: string } }[];
  readonly plumbline?: { readonly speculation: { readonly mode: string; readonly accepted: readonly number[] } };
}

for (const draftDepth of [1, 2, 3]) {
  describe(`draft depth ${draftDepth}`, () => {
    let server: EmbeddedServer;
    before(async () => {
      server = await embeddedServer({ draftDepth, contextCopy: 'off' }, { rowHook });
    });
    after(async () => server.close(0));

    const post = async (more: object): Promise<{ status: number; body: Answer }> => {
      seen = [];
      const response = await server.post('/v1/chat/completions', ask(more));
      return { status: response.status, body: (await response.json()) as Answer };
    };

    const reachable = (): Target[] => [
      { site: 'prefill_frontier', nth: 0 },
      ...Array.from({ length: draftDepth }, (_, nth) => ({ site: 'draft', nth })),
      { site: 'draft', nth: draftDepth }, // the first draft of the second round
      { site: 'verify', nth: 0 },
      { site: 'bonus', nth: 0 },
    ];

    for (const { name, fill, nan, inf } of PLANTS) {
      test(`${name} in any row that is reached is an error without a token of its round`, async () => {
        for (const [speculation, temperature] of [
          ['plain', 0],
          ['plain', 0.8],
          ['block', 0.8],
          ['coupled', 0.8],
        ] as const) {
          planted = undefined;
          const healthy = await post({ speculation, temperature });
          assert.equal(healthy.status, 200);
          assert.equal(healthy.body.plumbline?.speculation.mode, speculation);
          const reached = seen;
          let tried = 0;
          for (const target of reachable()) {
            const rows = reached.filter(({ site }) => site === target.site);
            if (target.nth >= rows.length) continue; // this text has no such row
            tried++;
            planted = { ...target, fill };
            const { status, body } = await post({ speculation, temperature });
            const label = `${speculation} T${temperature} ${target.site} ${target.nth}`;
            assert.equal(status, 500, label);
            assert.equal(body.error?.code, 'non_finite_logits', label);
            assert.equal(body.choices, undefined, label);
            const { site, nan: nans, inf: infs, vocab } = body.error.plumbline.census;
            assert.deepEqual([nans, infs, vocab], [nan, inf, 4096], label);
            if (target.site !== 'verify') assert.equal(site, target.site, label);

            seen = [];
            const streamed = await readEvents(
              await server.post('/v1/chat/completions', ask({ speculation, temperature, stream: true })),
            );
            assert.equal(streamed.done, false, label);
            const chunks = streamed.events as {
              readonly error?: { readonly code: string };
              readonly choices?: readonly { readonly delta: { readonly content?: string } }[];
            }[];
            assert.equal(chunks.at(-1)?.error?.code, 'non_finite_logits', label);
            const text = chunks.map((chunk) => chunk.choices?.[0]?.delta.content ?? '').join('');
            assert.ok(healthy.body.choices?.[0]?.message.content.startsWith(text), label);
          }
          assert.ok(tried >= 3, `only ${tried} kinds of rows were reached`);
          planted = undefined;
          const again = await post({ speculation, temperature });
          assert.equal(again.body.choices?.[0]?.message.content, healthy.body.choices?.[0]?.message.content);
        }
      });
    }
  });
}
