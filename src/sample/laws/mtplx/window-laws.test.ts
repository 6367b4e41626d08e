/**
 * Speculation does not change the law of the text: every path of drafts and every verdict, summed up. The thresholds and
 * residuals that are summed are those that the served sampler acts on: beside each path its coins and choices are played
 * at, and just beyond, their edges.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rowAfter, ScriptedDoubles, speculativeSampler, windowOf } from '../../../../test/support/verify-windows.js';
import type { DraftChoice } from '../../speculation.js';
import { checkRow, type RowContext } from '../../validity.js';
import { emissionDistance, sequences, type EmissionRules } from '../../verify/emitted-law.js';
import { acceptProbability, residual } from './acceptance.js';
import { blockLadder, blockResidual } from './block-law.js';
import { Distribution } from './distribution.js';
import { HostShaper } from './host-distribution.js';

const CONTEXT: RowContext = { site: 'verify', phase: 'verify', step: 0 };

/** Laws that depend on the tokens before, from rows of logits that the served sampler shapes too. */
interface World {
  readonly vocabSize: number;
  readonly row: (prefix: readonly number[]) => Float32Array;
  readonly target: EmissionRules['target'];
  readonly draft: EmissionRules['draft'];
  /** Drafts at these depths are point masses, as copied tokens are. */
  readonly pointMass: boolean;
}

function worldOf(vocabSize: number, salt: number, pointMass: boolean): World {
  const shaper = new HostShaper(vocabSize);
  const memory = new Map<string, Distribution>();
  const shaped = (row: Float32Array, key: string): Distribution => {
    let law = memory.get(key);
    if (!law)
      memory.set(
        key,
        (law = shaper.shape(checkRow(row, CONTEXT), { temperature: 1, topP: 1, topK: vocabSize }, CONTEXT)),
      );
    return law;
  };
  const row = (prefix: readonly number[]): Float32Array => rowAfter(prefix, vocabSize, 2 * salt);
  const draft = (prefix: readonly number[]): Distribution => {
    const law = shaped(rowAfter(prefix, vocabSize, 2 * salt + 1), `draft ${prefix.join()}`);
    return pointMass ? Distribution.oneHot(law.ids[law.probs.indexOf(Math.max(...law.probs))]!) : law;
  };
  return { vocabSize, row, target: (prefix) => shaped(row(prefix), `target ${prefix.join()}`), draft, pointMass };
}

type Verdicts = ReturnType<EmissionRules['verdicts']>;

function plainVerdicts({ target, draft }: World, path: readonly number[]): Verdicts {
  return path.map((id, at) => {
    const [p, q] = [target(path.slice(0, at)), draft(path.slice(0, at))];
    return { coin: acceptProbability(p.probabilityOf(id), q.probabilityOf(id)), residual: residual(p, q, CONTEXT) };
  });
}

function blockVerdicts({ target, draft }: World, path: readonly number[]): Verdicts {
  const depths = path.map((tokenId, at) => ({
    target: target(path.slice(0, at)),
    draft: draft(path.slice(0, at)),
    tokenId,
  }));
  const ladder = blockLadder(depths);
  return depths.map((depth, at) => ({
    coin: ladder.coin[at]!,
    residual: blockResidual(ladder, at, depth, CONTEXT),
  }));
}

const LAWS = { plain: plainVerdicts, block: blockVerdicts } as const;

/** Plays the served sampler at the edges of each coin and checks that it decides as the verdicts say. */
function playEdges(world: World, law: keyof typeof LAWS, path: readonly number[], verdicts: Verdicts): void {
  const drafts = path.map((tokenId, at): DraftChoice => {
    const distribution = world.draft(path.slice(0, at));
    return world.pointMass ? { tokenId } : { tokenId, distribution };
  });
  const play = (script: readonly number[]) => {
    const random = new ScriptedDoubles(script);
    const sampler = speculativeSampler({ vocabSize: world.vocabSize, topK: world.vocabSize }, law, random);
    const { accepted, next } = sampler.accept(windowOf(drafts, (i) => world.row(path.slice(0, i))));
    assert.equal(random.left, 0);
    return {
      accepted: accepted.map(({ tokenId }) => Number(tokenId)),
      next: Number(next?.token.tokenId),
      origin: next?.origin,
    };
  };
  const coins: number[] = [];
  for (const [at, { coin, residual: left }] of verdicts.entries()) {
    if (coin < 1) {
      for (const choice of [0, 0.37, 1 - 2 ** -53]) {
        const beyond = Math.max(coin + 2 ** -53, coin * (1 + Number.EPSILON));
        const want = { accepted: path.slice(0, at), next: left.idAt(choice), origin: 'residual_correction' };
        assert.deepEqual(play([...coins, beyond, choice]), want);
      }
    }
    if (coin === 0) return;
    coins.push(coin);
  }
  const bonus = world.target(path).idAt(0.61);
  assert.deepEqual(play([...coins, 0.61]), { accepted: path, next: bonus, origin: 'bonus' });
}

const SIZES: readonly [depth: number, vocabSize: number, worlds: number][] = [
  [1, 5, 12],
  [2, 4, 8],
  [3, 3, 6],
  [4, 3, 3],
];

for (const law of ['plain', 'block'] as const) {
  for (const pointMass of [false, true]) {
    for (const [depth, vocabSize, worlds] of SIZES) {
      test(`${law}, ${pointMass ? 'point masses' : 'drawn drafts'}, depth ${depth}: the emitted law is the target`, () => {
        for (let salt = 0; salt < worlds; salt++) {
          const world = worldOf(vocabSize, salt, pointMass);
          const verdicts = (path: readonly number[]): Verdicts => LAWS[law](world, path);
          const { target, draft } = world;
          assert.ok(emissionDistance({ vocabSize, depth, target, draft, verdicts }) < 1e-12);
          for (const path of sequences(vocabSize, depth)) {
            const drawn = path.every((id, at) => draft(path.slice(0, at)).probabilityOf(id) > 0);
            if (drawn) playEdges(world, law, path, verdicts(path));
          }
        }
      });
    }
  }
}

type Wrong = (world: World, path: readonly number[]) => Verdicts;

const WRONG: Readonly<Record<string, Wrong>> = {
  'coins that are a little low': (world, path) =>
    plainVerdicts(world, path).map((v) => ({ ...v, coin: v.coin * 0.99 })),
  'corrections from the target itself': (world, path) =>
    plainVerdicts(world, path).map((v, at) => ({ ...v, residual: world.target(path.slice(0, at)) })),
  "the ladder's coins with the plain law's residuals": (world, path) => {
    const plain = plainVerdicts(world, path);
    return blockVerdicts(world, path).map((v, at) => ({ ...v, residual: plain[at]!.residual }));
  },
};

for (const [name, verdicts] of Object.entries(WRONG)) {
  test(`the sum tells a wrong law from the target: ${name}`, () => {
    const distances = Array.from({ length: 6 }, (_, salt) => {
      const world = worldOf(3, salt, false);
      return emissionDistance({ ...world, depth: 3, verdicts: (path) => verdicts(world, path) });
    });
    assert.ok(Math.max(...distances) > 1e-3, distances.join());
  });
}
