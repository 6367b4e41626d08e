/**
 * metal-predicted.jsonl: arg-max, order and classes by Metal's rules beside the CPU's. metal-gate-cases.jsonl:
 * output * sigmoid(gate) in bfloat16 under both lowerings.
 */
import { sigmoidTableBf16 } from '../../numerics/gate-tables.js';
import { argmax, argmin, argsort } from '../../numerics/mlx/order.js';
import { logsumexpClass, maxClass, softmaxClass } from '../../numerics/mlx/softmax.js';
import { fromBf16Bits, toBf16Bits } from '../../numerics/rounding.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import { opFormat, type LineJudge } from './format.js';
import { floatTypeOf, valuesOf } from './mlx-common.js';

function judgePrediction(line: Fields, check: Checker): void {
  const x = valuesOf(line, 'in', floatTypeOf(line));
  check.equal('argmax', argmax(x, 'metal'), line.integer('argmax'));
  check.equal('argmax_cpu', argmax(x, 'cpu'), line.integer('argmax_cpu'));
  check.equal('argmin', argmin(x, 'metal'), line.integer('argmin'));
  check.equal('argmin_cpu', argmin(x, 'cpu'), line.integer('argmin_cpu'));
  check.sequence('argsort', argsort(x), line.integers('argsort'));
  check.sequence('argsort_neg', argsort(x.map((value) => -value)), line.integers('argsort_neg'));
  check.equal('max_class', maxClass(x), line.text('max_class'));
  check.equal('logsumexp_class', logsumexpClass(x, 'metal'), line.text('logsumexp_class'));
  check.equal('logsumexp_class_cpu', logsumexpClass(x, 'cpu'), line.text('logsumexp_class_cpu'));
  check.equal('softmax_class', softmaxClass(x), line.text('softmax_class'));
}

export const metalPredictedFormat = opFormat('mlx/metal-predicted', ['predict'], () => judgePrediction);

function gateJudge(): LineJudge {
  const tables = { eager: sigmoidTableBf16('standalone'), fused: sigmoidTableBf16('fused') };
  return (line, check) => {
    const bits = (key: string): number => Number.parseInt(line.text(key), 16);
    for (const form of ['eager', 'fused'] as const) {
      const sigmoid = tables[form][bits('gate')]!;
      const product = toBf16Bits(fromBf16Bits(bits('output')) * fromBf16Bits(sigmoid));
      check.equal(`sigmoid_${form}`, sigmoid, bits(`sigmoid_${form}`));
      check.equal(`product_${form}`, product, bits(`product_${form}`));
    }
  };
}

export const metalGateFormat = opFormat('mlx/metal-gate-cases', ['gate'], gateJudge);
