/**
 * The blocks of a Qwen4-Exp layer, one token and one block at a time, written down from the specification: no plan, no
 * pages, no windows, no batches. The scalar arithmetic (dot products, norms, rope) is that of the reference backend, which
 * the op tests judge; the phase-dependent gates come from the recorded tables and the runtime's own exponentials.
 *
 * Invariants: a block reads and returns values; the state it carries on is part of what it returns.
 */
import { Arithmetic } from '../../src/engine/backends/reference/arithmetic.js';
import type { ActivationLaw } from '../../src/engine/plan/builder.js';
import type { PlanHeader } from '../../src/engine/plan/decode.js';
import { PLAN_HEADER } from '../../src/engine/plan/ops.js';
import type { Qwen4Config } from '../../src/families/qwen/config-types.js';
import { expF32, expF64, sigmoidF32, siluF32, softplusF64 } from '../../src/numerics/exp.js';
import { laneSum, type FloatLaw } from '../../src/numerics/lanes.js';
import { roundBf16 } from '../../src/numerics/rounding.js';
import { RECORDED, recordedSigmoid, sigmoidByStepsF32 } from './gate-oracle.js';
import type { Lowering } from './gate-sites.js';

export type Row = Float32Array;

/** `weight(name)` under a fixed prefix. */
export type Weights = (name: string) => Float32Array;

/** How the sigmoids of the four sites are computed; `ordinary` is the sigmoid that no phase touches. */
export interface SiteLowerings {
  readonly attention: Lowering;
  readonly injection: Lowering;
  readonly sharedExpert: Lowering | 'ordinary';
  readonly ngram: Lowering | 'ordinary';
}

export interface AttentionCache {
  /** One row [kvHeads * dim] a token. */
  readonly keys: readonly Row[];
  readonly values: readonly Row[];
}

const fl = Math.fround;
const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

export class Blocks {
  readonly math: Arithmetic;
  readonly #config: Qwen4Config;
  readonly #law: ActivationLaw;
  /** As a plan holds it: float32. */
  readonly #eps: number;

  readonly #onGate: (gate: number) => void;

  /** @param onGate sees the input of every gate */
  constructor(config: Qwen4Config, law: ActivationLaw, floatLaw: FloatLaw, onGate: (gate: number) => void) {
    const header = Object.fromEntries(PLAN_HEADER.map((name) => [name, 0])) as PlanHeader;
    this.#config = config;
    this.#law = law;
    this.#onGate = onGate;
    this.#eps = fl(config.rmsNormEps);
    this.math = new Arithmetic({ ...header, act: law.act, mtplx: law.mtplx }, floatLaw, RECORDED);
  }

  /** W x, A-rounded. */
  linear(weight: Float32Array, x: Row): Row {
    const { math } = this;
    return Float32Array.from({ length: weight.length / x.length }, (_, o) =>
      math.act(math.dot(weight, o * x.length, x, 0, x.length)),
    );
  }

  /** Norm of every group of `group` elements, gains stored around zero. */
  norm(x: Row, stored: Float32Array, group: number): Row {
    const gain = stored.map((w) => (this.#law.mtplx === 1 ? roundBf16(fl(1 + w)) : fl(1 + w)));
    const out = new Float32Array(x.length);
    for (let at = 0; at < x.length; at += group) {
      this.math.norm(x, at, group, gain, at % gain.length, this.#eps, out, at);
    }
    return out;
  }

  gate(x: number, lowering: Lowering | 'ordinary'): number {
    this.#onGate(x);
    if (lowering === 'ordinary') return this.math.sigma(x);
    return this.#law.act === 1 ? recordedSigmoid(x, lowering) : sigmoidByStepsF32(x, lowering);
  }

  /** The block's input and, but for the last read of a model, its write weights. */
  readStreams(residual: Row, w: Weights, lowering: Lowering | undefined): { readonly x: Row; readonly inject: Row } {
    const { math } = this;
    const { hiddenSize: H, hyperConnections } = this.#config;
    const C = hyperConnections.streams;
    const share = (value: number): number => math.act(fl(value / C));
    const normed = this.norm(residual, w('hc_norm.weight'), H);
    const low = this.linear(w('input_mix_weight_down.weight'), normed).map((v) => math.silu(share(v)));
    const mix = this.linear(w('input_mix_weight_up.weight'), low);
    const x = Float32Array.from({ length: H }, (_, i) => {
      const terms = range(C).map((c) => math.act(fl(math.sigma(mix[c * H + i]!) * normed[c * H + i]!)));
      return math.act(fl(terms.reduce((sum, term) => fl(sum + term), 0) / C));
    });
    if (lowering === undefined) return { x, inject: new Float32Array(0) };
    const logits = this.linear(w('block_inject_weight.weight'), normed);
    return { x, inject: logits.map((v) => math.act(fl(2 * this.gate(share(v), lowering)))) };
  }

  writeStreams(residual: Row, inject: Row, y: Row): Row {
    const { math } = this;
    return residual.map((value, at) =>
      math.act(fl(value + math.act(fl(inject[Math.floor(at / y.length)]! * y[at % y.length]!)))),
    );
  }

  /** Every token is visible: for fewer tokens than the indexer's budget. */
  attention(x: Row, w: Weights, cache: AttentionCache, lowering: Lowering): { y: Row; cache: AttentionCache } {
    const { math } = this;
    const { heads, kvHeads, headDim: dim } = this.#config.attention;
    const packed = this.linear(w('q_proj.weight'), x);
    const turned = (head: Row, gain: string): Row => this.#rotated(this.norm(head, w(gain), dim), cache.keys.length);
    const key = this.linear(w('k_proj.weight'), x);
    const keys = [...cache.keys, joined(range(kvHeads).map((h) => turned(cut(key, h, dim), 'k_norm.weight')))];
    const values = [...cache.values, this.linear(w('v_proj.weight'), x)];
    const gated = range(heads).map((h) => {
      const kvHead = Math.floor(h / (heads / kvHeads));
      const query = turned(cut(packed, 2 * h, dim), 'q_norm.weight');
      const mixed = this.#attend(query, keys.map((k) => cut(k, kvHead, dim)), values.map((v) => cut(v, kvHead, dim))); // prettier-ignore
      const gates = cut(packed, 2 * h + 1, dim);
      return mixed.map((o, i) => math.act(fl(o * this.gate(gates[i]!, lowering))));
    });
    return { y: this.linear(w('o_proj.weight'), joined(gated)), cache: { keys, values } };
  }

  #attend(query: Row, keys: readonly Row[], values: readonly Row[]): Row {
    const { math } = this;
    const dim = query.length;
    const scores = keys.map((key) => math.act(fl(math.act(math.dot(query, 0, key, 0, dim)) * fl(dim ** -0.5))));
    const most = Math.max(...scores);
    const weights = scores.map((score) => expF32(fl(score - most)));
    const total = laneSum(weights, 0, weights.length);
    return query.map((_, i) =>
      math.act(values.reduce((sum, value, n) => math.fma(math.act(fl(weights[n]! / total)), value[i]!, sum), 0)),
    );
  }

  #rotated(head: Row, position: number): Row {
    const { rotaryDim, ropeTheta } = this.#config.attention;
    const angles = range(rotaryDim / 2).map((i) => fl(position * fl(1 / fl(ropeTheta ** fl((2 * i) / rotaryDim)))));
    const round = this.#law.mtplx === 1 ? fl : (value: number): number => this.math.act(value);
    const table = [...angles.map((a) => round(Math.cos(a))), ...angles.map((a) => round(Math.sin(a)))];
    const out = head.slice();
    this.math.rope(out, 0, rotaryDim, Float32Array.from(table));
    return out;
  }

  /** A causal convolution and its silu: `past` are the rows before, as many as the taps reach back, oldest first. */
  convolution(
    x: Row,
    past: readonly Row[],
    weight: Float32Array,
    dilation: number,
  ): { out: Row; past: readonly Row[] } {
    const { math } = this;
    const kernel = weight.length / x.length;
    const rows = [...past, x];
    const out = x.map((_, c) => {
      const sum = range(kernel).reduce((s, j) => math.fma(weight[c * kernel + j]!, rows[j * dilation]![c]!, s), 0);
      return math.silu(math.act(sum));
    });
    return { out, past: rows.slice(1) };
  }

  /** The gated delta rule of one token over states [keyDim, valueDim] of every value head, and its gated norm. */
  deltaRule(mixed: Row, w: Weights, x: Row, states: readonly Row[]): { y: Row; states: readonly Row[] } {
    const { math } = this;
    const { keyHeads, valueHeads, keyHeadDim: Dk, valueHeadDim: Dv, outputGate } = this.#config.linearAttention;
    const [a, b] = [this.linear(w('in_proj_a.weight'), x), this.linear(w('in_proj_b.weight'), x)];
    const z = this.linear(w('in_proj_z.weight'), x);
    const unit = (from: number): Row => {
      const scale = math.l2Scale(mixed, from, Dk);
      return mixed.slice(from, from + Dk).map((value) => math.actIfMtplx(fl(value * scale)));
    };
    const queryScale = math.actIfMtplx(fl(Dk ** -0.5));
    const next = states.map((state) => state.slice());
    const heads = next.map((S, h) => {
      const keyHead = Math.floor(h / (valueHeads / keyHeads));
      const query = unit(keyHead * Dk).map((value) => math.actIfMtplx(fl(value * queryScale)));
      const key = unit((keyHeads + keyHead) * Dk);
      const value = cut(mixed.subarray(2 * keyHeads * Dk), h, Dv);
      const biased = math.actIfMtplx(fl(a[h]! + w('dt_bias')[h]!));
      const decay = fl(expF64(fl(fl(-expF64(w('A_log')[h]!)) * fl(softplusF64(biased)))));
      const beta = math.sigma(b[h]!);
      S.forEach((s, at) => (S[at] = decay * s));
      const o = value.map((v, j) => {
        const column = (taps: Row): number => taps.reduce((sum, k, i) => math.fma(k, S[i * Dv + j]!, sum), 0);
        const delta = fl(beta * fl(v - column(key)));
        key.forEach((k, i) => (S[i * Dv + j] = math.fma(k, delta, S[i * Dv + j]!)));
        return math.act(column(query));
      });
      const scale = math.normScale(o, 0, Dv, this.#eps);
      const gateOf = outputGate === 'silu' ? siluF32 : sigmoidF32;
      return o.map((v, i) => {
        const weighted = math.act(fl(math.act(fl(v * scale)) * w('norm.weight')[i]!));
        return math.act(fl(weighted * gateOf(z[h * Dv + i]!)));
      });
    });
    return { y: this.linear(w('out_proj.weight'), joined(heads)), states: next };
  }

  mixtureOfExperts(x: Row, w: Weights, lowering: Lowering | 'ordinary'): Row {
    const { math } = this;
    const { expertsPerToken, normTopkProb } = this.#config.moe;
    const logits = this.linear(w('gate.weight'), x);
    const most = Math.max(...logits);
    const weights = logits.map((l) => expF32(fl(l - most)));
    const total = laneSum(weights, 0, weights.length);
    const chosen = range(logits.length)
      .sort((i, j) => logits[j]! - logits[i]! || i - j)
      .slice(0, expertsPerToken)
      .sort((i, j) => i - j);
    const shares = chosen.map((e) => fl(weights[e]! / total));
    const sum = shares.reduce((s, p) => fl(s + p), 0);
    const routed = chosen.map((e) => this.#swiglu(x, w, `experts.${e}`));
    const shared = this.#swiglu(x, w, 'shared_expert');
    const gate = this.gate(this.linear(w('shared_expert_gate.weight'), x)[0]!, lowering);
    return shared.map((s, i) => {
      const y = routed.reduce((total, out, n) => {
        const share = math.act(normTopkProb ? fl(shares[n]! / sum) : shares[n]!);
        return math.fma(share, out[i]!, total);
      }, 0);
      return math.act(fl(math.act(y) + math.act(fl(gate * s))));
    });
  }

  #swiglu(x: Row, w: Weights, at: string): Row {
    const { math } = this;
    const [gate, up] = [this.linear(w(`${at}.gate_proj.weight`), x), this.linear(w(`${at}.up_proj.weight`), x)];
    return this.linear(w(`${at}.down_proj.weight`), gate.map((g, i) => math.act(fl(math.silu(g) * up[i]!)))); // prettier-ignore
  }

  /** The gated value [C * H] of an n-gram embedding, before its convolution. */
  ngramValue(embedding: Row, residual: Row, w: Weights, lowering: Lowering | 'ordinary'): Row {
    const { math } = this;
    const H = this.#config.hiddenSize;
    const key = this.norm(this.linear(w('key_proj.weight'), embedding), w('norm_key.weight'), H);
    const query = this.norm(residual, w('norm_query.weight'), H);
    const value = this.linear(w('value_proj.weight'), embedding);
    const gates = range(residual.length / H).map((c) => {
      const products = cut(key, c, H).map((k, i) => math.act(fl(k * query[c * H + i]!)));
      const a = math.act(fl(math.act(laneSum(products, 0, H)) / fl(Math.sqrt(H))));
      return this.gate(fl(Math.sign(a) * math.act(fl(Math.sqrt(Math.max(Math.abs(a), fl(1e-6)))))), lowering);
    });
    return residual.map((_, at) => math.act(fl(gates[Math.floor(at / H)]! * value[at % H]!)));
  }
}

/** Elements `n * width` … of a row. */
const cut = (row: Row, n: number, width: number): Row => row.slice(n * width, (n + 1) * width);

const joined = (rows: readonly Row[]): Row => Float32Array.from(rows.flatMap((row) => [...row]));
