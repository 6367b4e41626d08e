/**
 * What a plan is said to move and multiply, against a count that knows nothing of plans: only the configuration and the
 * published shapes of the weights.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import type { PlanTraffic } from '../../src/engine/plan/traffic.js';
import type { Qwen4Config } from '../../src/families/qwen/config-types.js';
import { syntheticQwenConfig } from '../../src/families/qwen/synthetic.js';
import { loadSynthetic } from '../../src/families/synthetic.js';

/** Elements of the matrices of one layer that every token goes through; `experts` of the routed ones. */
function layerMatrices(c: Qwen4Config, layer: number, experts: number): number {
  const H = c.hiddenSize;
  const { streams: C, rank: r } = c.hyperConnections;
  const residual = 2 * (2 * r * C * H + C * C * H);
  const { heads, kvHeads, headDim: D } = c.attention;
  const l = c.linearAttention;
  const values = l.valueHeads * l.valueHeadDim;
  const mixer =
    c.layerTypes[layer] === 'attention'
      ? H * (2 * heads * D + 2 * kvHeads * D + (c.indexer!.heads + 1) * c.indexer!.headDim) + heads * D * H
      : H * (2 * l.keyHeads * l.keyHeadDim + 2 * values + 2 * l.valueHeads) + values * H;
  const moe = H * (c.moe.experts + 1) + 3 * H * c.moe.sharedExpertWidth + experts * 3 * H * c.moe.expertWidth;
  const ple = c.ple?.layers.includes(layer) === true ? c.ple.embedDim * (C * H + H) : 0;
  return residual + mixer + moe + ple;
}

/** Elements of the matrices behind the last layer: the last read of the streams, and the logits. */
function headMatrices(c: Qwen4Config): number {
  const { streams: C, rank: r } = c.hyperConnections;
  return 2 * r * C * c.hiddenSize + c.vocabSize * c.hiddenSize;
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
const layers = (c: Qwen4Config): number[] => c.layerTypes.map((_, layer) => layer);

function allMatrices(c: Qwen4Config, experts: number): number {
  return sum(layers(c).map((layer) => layerMatrices(c, layer, experts))) + headMatrices(c);
}

/** Bytes of float32 vectors that every token goes through: gains, taps, biases, two rows of the rotary table. */
function vectorBytes(c: Qwen4Config): number {
  const wide = c.hyperConnections.streams * c.hiddenSize;
  const l = c.linearAttention;
  const perLayer = c.layerTypes.map((type, layer) => {
    const ple = c.ple?.layers.includes(layer) === true ? 3 * wide + wide * c.ple.convKernel : 0;
    const linear = l.convChannels * l.convKernel + 2 * l.valueHeads + l.valueHeadDim;
    const attention = 2 * c.attention.headDim + c.indexer!.headDim + 2 * c.attention.rotaryDim;
    return 2 * wide + ple + (type === 'attention' ? attention : linear);
  });
  return 4 * (sum(perLayer) + wide);
}

/** Bytes of state that one token reads when it stands at `position`, keys and values in bfloat16. */
function stateBytes(c: Qwen4Config, position: number): number {
  const l = c.linearAttention;
  const { blockTokens: B, budgetTokens, headDim: Di } = c.indexer!;
  const tokens = position + 1;
  const blocks = Math.floor(tokens / B);
  const chosen = blocks * B > budgetTokens;
  const visible = chosen ? budgetTokens + (tokens % B) : tokens;
  const perLayer = c.layerTypes.map((type, layer) => {
    const wide = c.hyperConnections.streams * c.hiddenSize;
    const tail = c.ple?.layers.includes(layer) === true ? 4 * (c.ple.convKernel - 1) * c.ple.ngramSize * wide : 0;
    if (type === 'linear_attention') {
      return tail + 4 * l.valueHeads * l.keyHeadDim * l.valueHeadDim + 4 * (l.convKernel - 1) * l.convChannels;
    }
    const keysAndValues = visible * 2 * c.attention.kvHeads * c.attention.headDim * 2;
    const blockKeys = chosen ? blocks * Di * 2 : 0;
    const endedBlock = tokens % B === 0 ? B * Di * 2 : 0;
    return keysAndValues + blockKeys + endedBlock;
  });
  return sum(perLayer);
}

describe('traffic of the tiny synthetic model', async () => {
  const config = syntheticQwenConfig('tiny');
  const backend = new ReferenceBackend();
  const synthetic = await loadSynthetic({
    size: 'tiny',
    seed: 1,
    id: 'tiny',
    backend,
    dtype: 'bf16',
    contextLength: 256,
    gatePolicy: 'strict',
    maxRows: 64,
    sequences: 1,
  });
  after(async () => {
    await synthetic.model.close();
    await backend.close();
  });
  const decode = (position: number): PlanTraffic => synthetic.traffic({ rows: 1, outRows: 1, position }, 'decode');

  test('a decoded token reads its matrices and vectors once, one row of the embedding, and k experts a layer', () => {
    const k = config.moe.expertsPerToken;
    const embedding = 2 * config.hiddenSize;
    // At a position that ends no block, whose rope and gain are read besides.
    assert.equal(decode(9).weightBytes, 2 * allMatrices(config, k) + vectorBytes(config) + embedding);
    const attentionLayers = config.layerTypes.filter((type) => type === 'attention').length;
    const endedBlocks = attentionLayers * 4 * (config.indexer!.headDim + config.attention.rotaryDim);
    assert.equal(decode(11).weightBytes, decode(9).weightBytes + endedBlocks);
  });

  test('its state is every visible key and value, until the indexer chooses', () => {
    const { budgetTokens } = config.indexer!;
    for (const position of [0, 3, 9, budgetTokens - 1, budgetTokens + 3, budgetTokens + 4, 200]) {
      assert.equal(decode(position).stateReadBytes, stateBytes(config, position), `position ${position}`);
    }
  });

  test('the recurrent states are written back whole, and one row of keys and values', () => {
    const written = decode(9).stateWrittenBytes;
    const read = stateBytes(config, 0) - 2 * 2 * config.attention.kvHeads * config.attention.headDim;
    const row = 2 * (2 * config.attention.kvHeads * config.attention.headDim + config.indexer!.headDim);
    assert.equal(written, read + row);
  });

  test('many rows multiply as often as the same rows alone, and read no more than every expert', () => {
    const rows = 24;
    const together = synthetic.traffic({ rows, outRows: 0, position: 8 }, 'prefill');
    const alone = Array.from({ length: rows }, (_, i) =>
      synthetic.traffic({ rows: 1, outRows: 0, position: 8 + i }, 'prefill'),
    );
    assert.equal(together.multiplyAdds, sum(alone.map(({ multiplyAdds }) => multiplyAdds)));
    const head = 2 * headMatrices(config) + 4 * config.hyperConnections.streams * config.hiddenSize;
    assert.ok(together.weightBytes < 2 * allMatrices(config, config.moe.experts) - head + 2 * vectorBytes(config));
    assert.ok(together.weightBytes > alone[0]!.weightBytes);
  });

  test('without selected rows nothing of the head is read', () => {
    const without = synthetic.traffic({ rows: 1, outRows: 0, position: 9 }, 'decode');
    const gain = 4 * config.hyperConnections.streams * config.hiddenSize;
    assert.equal(decode(9).weightBytes - without.weightBytes, 2 * headMatrices(config) + gain);
    assert.equal(decode(9).multiplyAdds - without.multiplyAdds, headMatrices(config));
  });
});

test('the standard synthetic model has about 0.6 billion active parameters of about 1.3', () => {
  const config = syntheticQwenConfig('standard');
  const active = allMatrices(config, config.moe.expertsPerToken);
  const all = allMatrices(config, config.moe.experts) + config.vocabSize * config.hiddenSize;
  assert.ok(active > 0.58e9 && active < 0.66e9, `${active} active`);
  assert.ok(all > 1.2e9 && all < 1.4e9, `${all} in all`);
  assert.equal(config.layerTypes.filter((type) => type === 'linear_attention').length, 15);
  assert.equal(config.layerTypes.filter((type) => type === 'attention').length, 5);
});
