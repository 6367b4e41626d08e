import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { RowContext } from '../../validity.js';
import { acceptProbability, residual } from './acceptance.js';
import { blockLadder, blockResidual, type DraftedDepth } from './block-law.js';
import { Distribution } from './distribution.js';

const CONTEXT: RowContext = { site: 'residual_correction', phase: 'verify', step: 0 };

const law = (...probs: number[]): Distribution =>
  Distribution.sparse(Int32Array.from(probs.keys()), Float64Array.from(probs), CONTEXT);

const close = (got: ArrayLike<number>, want: readonly number[], tolerance: number): void => {
  assert.equal(got.length, want.length);
  want.forEach((value, i) => assert.ok(Math.abs(got[i]! - value) <= tolerance, `[${i}]: ${got[i]} for ${value}`));
};

test('a window of three: ladder and residuals as worked out by hand', () => {
  const p = [law(0.25, 0.35, 0.4), law(0.2, 0.7, 0.1), law(0.1, 0.6, 0.3)];
  const q = [law(0.5, 0.3, 0.2), law(0.6, 0.3, 0.1), law(0.2, 0.5, 0.3)];
  const window = [0, 0, 1].map((tokenId, at): DraftedDepth => ({ target: p[at]!, draft: q[at]!, tokenId }));
  const ladder = blockLadder(window);
  close(ladder.rho, [0.5, 1 / 3, 1.2], 1e-15);
  close(ladder.budget, [0.5, 1 / 6, 0.2], 1e-15);
  close(ladder.reach, [0.238095238095238, 0.2, 0.2], 1e-15);
  close(ladder.coin, [0.238095238095238, 0.84, 1], 1e-14);
  const residuals = window.map((depth, at) => blockResidual(ladder, at, depth, CONTEXT).toDense(3));
  close(residuals[0]!, [0, 0.2, 0.8], 1e-14);
  close(residuals[1]!, [0, 1, 0], 1e-14);
  close(residuals[2]!, [0.1, 0.6, 0.3], 1e-14);
});

const probabilities = fc
  .array(fc.oneof(fc.constant(0), fc.double({ min: 0.001, max: 1, noNaN: true })), { minLength: 4, maxLength: 4 })
  .filter((masses) => masses.some((mass) => mass > 0))
  .map((masses) => {
    const ids = [...masses.keys()].filter((id) => masses[id]! > 0);
    return Distribution.sparse(
      Int32Array.from(ids),
      Float64Array.from(ids, (id) => masses[id]!),
      CONTEXT,
    );
  });
const depth = fc
  .record({ target: probabilities, draft: probabilities })
  .chain((laws) => fc.constantFrom(...laws.draft.ids).map((tokenId): DraftedDepth => ({ ...laws, tokenId })));
const window = fc.array(depth, { minLength: 1, maxLength: 5 });

test('coins are chances, and what is kept never grows with depth', () => {
  fc.assert(
    fc.property(window, (depths) => {
      const { coin, reach, budget } = blockLadder(depths);
      depths.forEach((_, at) => {
        assert.ok(coin[at]! >= 0 && coin[at]! <= 1);
        assert.ok(reach[at]! >= 0 && reach[at]! <= (reach[at - 1] ?? 1));
        assert.ok(budget[at]! <= (reach[at - 1] ?? 1));
      });
      assert.equal(reach.at(-1), budget.at(-1));
    }),
  );
});

test('a budget that fills everything is kept to the last bit', () => {
  let filled = 0;
  fc.assert(
    fc.property(window, (depths) => {
      const { reach, budget } = blockLadder(depths);
      for (let at = 0; at < depths.length; at++) {
        const cap = reach[at - 1] ?? 1;
        if (budget[at] !== cap) continue;
        filled++;
        assert.equal(reach[at], cap);
      }
    }),
    { numRuns: 2000 },
  );
  assert.ok(filled > 100);
});

test('the look-ahead keeps the budget in the mean over the next draft', () => {
  fc.assert(
    fc.property(window, (depths) => {
      for (let at = 0; at + 1 < depths.length; at++) {
        const next = depths[at + 1]!;
        let mean = 0;
        next.draft.ids.forEach((tokenId, i) => {
          const varied = depths.with(at + 1, { ...next, tokenId });
          mean += next.draft.probs[i]! * blockLadder(varied).reach[at]!;
        });
        assert.ok(Math.abs(mean - blockLadder(depths).budget[at]!) < 1e-12);
      }
    }),
  );
});

test('a window of one draft is decided as under the plain law', () => {
  fc.assert(
    fc.property(depth, (only) => {
      const { target, draft, tokenId } = only;
      const ladder = blockLadder([only]);
      assert.equal(ladder.coin[0], acceptProbability(target.probabilityOf(tokenId), draft.probabilityOf(tokenId)));
      const plain = residual(target, draft, CONTEXT);
      const mass = target.ids.reduce((sum, id, i) => sum + Math.max(0, target.probs[i]! - draft.probabilityOf(id)), 0);
      if (mass > 1e-3) close(blockResidual(ladder, 0, only, CONTEXT).toDense(4), [...plain.toDense(4)], 1e-12);
    }),
  );
});

test('at least as many drafts are expected to survive as under the plain law', () => {
  fc.assert(
    fc.property(fc.array(depth, { minLength: 2, maxLength: 3 }), (depths) => {
      // Over all paths of drafts: the mean of the product of coins, depth by depth.
      const survivors = (coinsOf: (path: readonly DraftedDepth[]) => readonly number[]): number => {
        let expected = 0;
        const walk = (at: number, path: readonly DraftedDepth[], mass: number): void => {
          if (at === depths.length) {
            let kept = mass;
            for (const coin of coinsOf(path)) expected += kept *= coin;
            return;
          }
          const { draft } = depths[at]!;
          draft.ids.forEach((tokenId, i) => {
            walk(at + 1, [...path, { ...depths[at]!, tokenId }], mass * draft.probs[i]!);
          });
        };
        walk(0, [], 1);
        return expected;
      };
      const plain = survivors((path) =>
        path.map(({ target, draft, tokenId }) =>
          acceptProbability(target.probabilityOf(tokenId), draft.probabilityOf(tokenId)),
        ),
      );
      assert.ok(survivors((path) => blockLadder(path).coin) >= plain - 1e-12);
    }),
  );
});

test('equal laws keep every draft, exactly', () => {
  fc.assert(
    fc.property(window, (depths) => {
      const equal = depths.map(({ draft, tokenId }) => ({ target: draft, draft, tokenId }));
      assert.deepEqual(
        blockLadder(equal).coin,
        equal.map(() => 1),
      );
    }),
  );
});
