import assert from 'node:assert/strict';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { optionsFromEnvironment, resolveOptions } from '../config.js';
import { modelSpecs, singleModel } from './model-specs.js';
import { embeddedModelFolder } from './package-info.js';

const specs = (model: string | readonly string[] | undefined, modelId?: string) =>
  modelSpecs(resolveOptions({ model, modelId }));

test('a folder is served under its own name, under --model-id, or under the name before the equals sign', () => {
  assert.deepEqual(specs(undefined), [{ id: 'plumbline-tiny', folder: embeddedModelFolder() }]);
  assert.deepEqual(specs('/a/b'), [{ id: 'b', folder: '/a/b' }]);
  assert.deepEqual(specs('/a/b', 'mine'), [{ id: 'mine', folder: '/a/b' }]);
  assert.deepEqual(specs(['x=/a/b', 'rel/c', './d=e', 'y=f=g']), [
    { id: 'x', folder: '/a/b' },
    { id: 'c', folder: resolve('rel/c') },
    { id: 'd=e', folder: resolve('d=e') },
    { id: 'y', folder: resolve('f=g') },
  ]);
});

test('names must differ, one name cannot stand for several, and a command for one model takes one', () => {
  const refused = (run: () => unknown, message: RegExp): void =>
    assert.throws(run, { code: 'invalid_option', message });
  refused(() => specs(['/a/m', '/b/m']), /two models would be served as 'm'; name them with --model name=folder/);
  refused(() => specs(['/a/m', '/b/n'], 'x'), /--model-id names a single model/);
  refused(() => singleModel({ model: ['/a/m', '/b/n'], modelId: undefined }), /takes one --model/);
  for (const wrong of ['', [], ['=x'], ['a', '']]) refused(() => specs(wrong), /--model must be a checkpoint folder/);
});

test('the environment variable lists them with commas', () => {
  assert.deepEqual(optionsFromEnvironment({ PLUMBLINE_MODEL: '/a, x=/b' }).model, ['/a', 'x=/b']);
});
