/**
 * A Qwen4-Exp model, trunk and draft head, computed one token and one layer at a time: the judge of whole forwards under
 * the phase law of gates. It knows nothing of phases: a step is told how each gated site is to be computed.
 *
 * Invariants: a state is a value, a step returns the next one; tokens before the sequence are the end-of-text id.
 */
import type { ActivationLaw } from '../../src/engine/plan/builder.js';
import type { Qwen4Config } from '../../src/families/qwen/config-types.js';
import { NgramHash } from '../../src/families/qwen/ngram.js';
import { ngramConstants } from '../../src/families/qwen/ngram-constants.js';
import type { FloatLaw } from '../../src/numerics/lanes.js';
import { Blocks, type AttentionCache, type Row, type SiteLowerings, type Weights } from './layerwise-blocks.js';

interface LayerState {
  readonly attention: AttentionCache;
  readonly conv: readonly Row[];
  readonly delta: readonly Row[];
  readonly ngram: readonly Row[];
}

export interface LayerwiseState {
  readonly tokens: readonly number[];
  readonly layers: readonly LayerState[];
}

export interface LayerwiseRow<State> {
  readonly state: State;
  /** The residual streams behind the last layer. */
  readonly hidden: Row;
  readonly logits: Row;
}

const EMPTY: AttentionCache = { keys: [], values: [] };

export class LayerwiseQwen {
  readonly #config: Qwen4Config;
  readonly #tensors: ReadonlyMap<string, Float32Array>;
  readonly #blocks: Blocks;
  readonly #hashes: ReadonlyMap<number, NgramHash>;

  constructor(
    { config, tensors }: { readonly config: Qwen4Config; readonly tensors: ReadonlyMap<string, Float32Array> },
    law: ActivationLaw,
    floatLaw: FloatLaw,
    onGate: (gate: number) => void = () => undefined,
  ) {
    this.#config = config;
    this.#tensors = tensors;
    this.#blocks = new Blocks(config, law, floatLaw, onGate);
    this.#hashes = new Map(
      config.ple?.layers.map((layer, index) => {
        const constants = ngramConstants(config.ple!, index, config.vocabSize);
        return [layer, new NgramHash(constants, config.ple!.eosTokenId, config.vocabSize)];
      }),
    );
  }

  newState(): LayerwiseState {
    const { layerTypes, hiddenSize, hyperConnections, linearAttention: l, ple } = this.#config;
    const rows = (count: number, width: number): Row[] => Array.from({ length: count }, () => new Float32Array(width));
    return {
      tokens: [],
      layers: layerTypes.map(() => ({
        attention: EMPTY,
        conv: rows(l.convKernel - 1, l.convChannels),
        delta: rows(l.valueHeads, l.keyHeadDim * l.valueHeadDim),
        ngram: ple ? rows((ple.convKernel - 1) * ple.ngramSize, hyperConnections.streams * hiddenSize) : [],
      })),
    };
  }

  /** One token through every layer and the output map. */
  step(state: LayerwiseState, token: number, sites: SiteLowerings): LayerwiseRow<LayerwiseState> {
    const { streams } = this.#config.hyperConnections;
    const embedding = this.#embedding(token);
    let residual: Row = Float32Array.from(
      { length: streams * embedding.length },
      (_, i) => embedding[i % embedding.length]!,
    );
    const layers = state.layers.map((before, layer) => {
      let after = before;
      const hash = this.#hashes.get(layer);
      if (hash) {
        const added = this.#addNgram(residual, layer, this.#ngramRow(hash, layer, state.tokens, token), before, sites);
        residual = added.residual;
        after = { ...after, ngram: added.past };
      }
      const mixed = this.#mixer(residual, `model.layers.${layer}`, layer, after, sites);
      residual = this.#feedForward(mixed.residual, `model.layers.${layer}`, sites);
      return mixed.state;
    });
    const logits = this.#output(residual, 'model.hyper_connection_mixer');
    return { state: { tokens: [...state.tokens, token], layers }, hidden: residual, logits };
  }

  /** One pair of a hidden stream and the token after it through the draft head. */
  draft(
    cache: AttentionCache | undefined,
    hidden: Row,
    token: number,
    sites: SiteLowerings,
  ): LayerwiseRow<AttentionCache> {
    const blocks = this.#blocks;
    const H = this.#config.hiddenSize;
    const normed = blocks.norm(hidden, this.#weight('mtp.pre_fc_norm_hidden.weight'), hidden.length);
    const embedding = blocks.norm(this.#embedding(token), this.#weight('mtp.pre_fc_norm_embedding.weight'), H);
    const projected = blocks.linear(this.#weight('mtp.fc_embedding.weight'), embedding);
    const streams = Array.from({ length: hidden.length / H }, (_, c) =>
      blocks.linear(this.#weight('mtp.fc_hidden.weight'), normed.slice(c * H, (c + 1) * H)),
    );
    const front = Float32Array.from(streams.flatMap((row) => [...row]));
    const start = blocks.writeStreams(front, new Float32Array(streams.length).fill(1), projected);
    const mixed = this.#attention(start, 'mtp.layers.0', cache ?? EMPTY, sites);
    const residual = this.#feedForward(mixed.residual, 'mtp.layers.0', sites);
    return { state: mixed.cache, hidden: residual, logits: this.#output(residual, 'mtp.hyper_connection_mixer') };
  }

  #mixer(residual: Row, at: string, layer: number, state: LayerState, sites: SiteLowerings) {
    if (this.#config.layerTypes[layer] === 'attention') {
      const { residual: written, cache } = this.#attention(residual, at, state.attention, sites);
      return { residual: written, state: { ...state, attention: cache } };
    }
    const blocks = this.#blocks;
    const w = this.#under(`${at}.linear_attn`);
    const { x, inject } = blocks.readStreams(residual, this.#under(`${at}.attn_hyper_connection`), sites.injection);
    const qkv = blocks.linear(w('in_proj_qkv.weight'), x);
    const { out, past } = blocks.convolution(qkv, state.conv, w('conv1d.weight'), 1);
    const { y, states } = blocks.deltaRule(out, w, x, state.delta);
    return { residual: blocks.writeStreams(residual, inject, y), state: { ...state, conv: past, delta: states } };
  }

  #attention(residual: Row, at: string, before: AttentionCache, sites: SiteLowerings) {
    const blocks = this.#blocks;
    const { x, inject } = blocks.readStreams(residual, this.#under(`${at}.attn_hyper_connection`), sites.injection);
    const { y, cache } = blocks.attention(x, this.#under(`${at}.self_attn`), before, sites.attention);
    return { residual: blocks.writeStreams(residual, inject, y), cache };
  }

  #feedForward(residual: Row, at: string, sites: SiteLowerings): Row {
    const blocks = this.#blocks;
    const { x, inject } = blocks.readStreams(residual, this.#under(`${at}.mlp_hyper_connection`), sites.injection);
    return blocks.writeStreams(
      residual,
      inject,
      blocks.mixtureOfExperts(x, this.#under(`${at}.mlp`), sites.sharedExpert),
    );
  }

  #addNgram(residual: Row, layer: number, embedding: Row, { ngram }: LayerState, sites: SiteLowerings) {
    const { hiddenSize, ple } = this.#config;
    const blocks = this.#blocks;
    const { math } = blocks;
    const w = this.#under(`model.layers.${layer}.ple`);
    const u = blocks.ngramValue(embedding, residual, w, sites.ngram);
    const normed = blocks.norm(u, w('norm_conv.weight'), hiddenSize);
    const { out, past } = blocks.convolution(normed, ngram, w('conv1d.weight'), ple!.ngramSize);
    const sum = (value: number, i: number): number =>
      math.act(Math.fround(value + math.act(Math.fround(u[i]! + out[i]!))));
    return { residual: residual.map(sum), past };
  }

  #ngramRow(hash: NgramHash, layer: number, before: readonly number[], token: number): Row {
    const table = this.#weight(`model.layers.${layer}.ple.ple_embedding.ngram_embedding.weight`);
    const width = this.#config.ple!.rowWidth;
    const rows = hash.rows([token], hash.nextHistory(hash.emptyHistory(), before));
    return Float32Array.from([...rows].flatMap((row) => [...table.subarray(row * width, (row + 1) * width)]));
  }

  #output(residual: Row, mixer: string): Row {
    const { x } = this.#blocks.readStreams(residual, this.#under(mixer), undefined);
    return this.#blocks.linear(this.#weight('lm_head.weight'), x);
  }

  #embedding(token: number): Row {
    const H = this.#config.hiddenSize;
    return this.#weight('model.embed_tokens.weight').slice(token * H, (token + 1) * H); // bfloat16 as it is
  }

  #under(prefix: string): Weights {
    return (name) => this.#weight(`${prefix}.${name}`);
  }

  #weight(name: string): Float32Array {
    const values = this.#tensors.get(name);
    if (!values) throw new TypeError(`the checkpoint has no ${name}`);
    return values;
  }
}
