import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OPTION_NAMES, OPTIONS, optionsFromEnvironment, parseOption, resolveOptions } from './config.js';
import { PlumblineError } from './errors.js';

const refuses = (param: string) => (thrown: unknown) =>
  thrown instanceof PlumblineError &&
  thrown.code === 'invalid_option' &&
  thrown.param === param &&
  thrown.message.startsWith(param);

test('every default is allowed by its own row, and every flag and variable is there once', () => {
  for (const name of OPTION_NAMES) {
    const { default: value, kind } = OPTIONS[name];
    assert.ok(value === undefined || kind.isValid(value), name);
    assert.ok(OPTIONS[name].help.length > 10 || name === 'json');
  }
  assert.equal(new Set(OPTION_NAMES.map((name) => OPTIONS[name].env)).size, OPTION_NAMES.length);
  assert.equal(OPTIONS.maxQueue.env, 'PLUMBLINE_MAX_QUEUE');
});

test('what is given is checked, what is not takes its default, undefined is not given', () => {
  const options = resolveOptions({ port: 0, model: undefined });
  assert.equal(options.port, 0);
  assert.equal(options.host, '127.0.0.1');
  assert.equal(options.model, undefined);
  assert.throws(() => resolveOptions({ port: 1.5 }), refuses('--port'));
  assert.throws(() => resolveOptions({ temperature: NaN }), refuses('--temperature'));
  assert.throws(() => resolveOptions({ seed: 2n ** 64n }), refuses('--seed'));
  assert.throws(() => resolveOptions({ corsOrigin: [''] }), refuses('--cors-origin'));
});

test('text becomes values exactly, or is refused', () => {
  assert.equal(parseOption('seed', '18446744073709551615'), 2n ** 64n - 1n);
  assert.equal(parseOption('temperature', '.5'), 0.5);
  assert.equal(parseOption('port', '0'), 0);
  assert.deepEqual(parseOption('corsOrigin', 'https://a, https://b'), ['https://a', 'https://b']);
  assert.equal(parseOption('json', 'true'), true);
  for (const [name, text] of [
    ['port', ''],
    ['port', '0x50'],
    ['port', '1e3'],
    ['temperature', 'Infinity'],
    ['temperature', 'NaN'],
    ['temperature', '1,5'],
    ['seed', '-1'],
    ['json', 'yes'],
    ['host', ''],
  ] as const) {
    assert.throws(() => parseOption(name, text), PlumblineError, `${name} '${text}'`);
  }
});

test('the environment is named in its own errors, and an empty variable is not set', () => {
  assert.deepEqual(optionsFromEnvironment({ PLUMBLINE_THREADS: '3', PLUMBLINE_PORT: '', PATH: '/bin' }), {
    threads: 3,
  });
  assert.throws(() => optionsFromEnvironment({ PLUMBLINE_THREADS: 'all' }), refuses('PLUMBLINE_THREADS'));
});
