/**
 * Damaged checkpoint folders of a family: each is made from a good one by one act of damage, and opening it must give an
 * error of the table with a message that names what is wrong, in bounded time, with nothing left open or allocated.
 */
import assert from 'node:assert/strict';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ReferenceBackend } from '../../src/engine/backends/reference/reference.js';
import { PlumblineError, type ErrorCode } from '../../src/errors.js';
import { loadModel } from '../../src/families/load.js';
import { temporaryFolder } from './repository.js';
import { writeJson } from './write-checkpoint.js';
import { encodeSafetensors, type TensorData } from './write-safetensors.js';

export const MODEL_FILE = 'model.safetensors';

export interface Damage {
  readonly what: string;
  readonly code: ErrorCode;
  /** What the message must say. */
  readonly says: RegExp;
  readonly act: (dir: string) => void;
}

type Act = Damage['act'];

/** Acts of damage on folders whose model.safetensors holds these tensors and whose config.json is made by `config`. */
export function damageTools(
  tensors: () => TensorData[],
  config: (overrides: Record<string, unknown>) => Record<string, unknown>,
) {
  /** Rewrites model.safetensors with other tensors, well formed. */
  const replace =
    (change: (tensors: TensorData[]) => TensorData[]): Act =>
    (dir) =>
      writeFileSync(join(dir, MODEL_FILE), encodeSafetensors(change(tensors())));
  const alter = (name: string, change: (tensor: TensorData) => TensorData | TensorData[]): Act =>
    replace((all) => all.flatMap((tensor) => (tensor.name === name ? change(tensor) : [tensor])));
  return {
    alter,
    without: (name: string): Act => replace((all) => all.filter((tensor) => tensor.name !== name)),
    reshape: (name: string, shape: readonly number[]): Act => alter(name, (tensor) => ({ ...tensor, shape })),
    config:
      (overrides: Record<string, unknown>): Act =>
      (dir) =>
        writeJson(dir, 'config.json', config(overrides)),
  };
}

/** Open descriptors of this process; 0 where the system does not say. */
export function openDescriptors(): number {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return 0;
  }
}

/** Loads a folder and closes the model again. */
export async function openFolder(dir: string): Promise<void> {
  const backend = new ReferenceBackend();
  const options = { dir, id: 'damaged', backend, dtype: 'auto', gatePolicy: 'strict' as const };
  try {
    const { model } = await loadModel({ ...options, maxRows: 4, sequences: 1 });
    await model.close();
  } finally {
    assert.equal(backend.memory().allocated, 0, 'all memory is given back');
  }
}

/** @param write makes the good folder. */
export function testDamages(damages: readonly Damage[], write: (dir: string) => unknown): void {
  for (const { what, code, says, act } of damages) {
    test(what, async (t) => {
      const dir = temporaryFolder(t, 'damaged');
      write(dir);
      act(dir);
      const before = openDescriptors();
      const started = performance.now();
      await assert.rejects(openFolder(dir), (error) => {
        assert.ok(error instanceof PlumblineError, String(error));
        assert.equal(error.code, code, error.message);
        assert.match(error.message, says);
        assert.ok(error.message.length < 600, 'the message is short');
        return true;
      });
      assert.ok(performance.now() - started < 5000, 'it was found in bounded time');
      assert.equal(openDescriptors(), before, 'all descriptors are closed');
    });
  }
}
