/** The command line, in this process with its own streams, and once as the executable that npm installs. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { embeddedModelFolder, packageRoot } from '../../src/http/package-info.js';
import { cli, type Ran } from '../support/cli.js';

const question = 'Can you explain agent.getName?';
const answer = /^Get a unique name for a set of request options/;

test('every command has help; help and version are successes on stdout', async () => {
  for (const args of [
    [],
    ['serve'],
    ['run'],
    ['verify'],
    ['verify', 'golden'],
    ['verify', 'fixtures'],
    ['verify', 'plan'],
    ['bench'],
    ['supervise'],
  ]) {
    const { code, out, err } = await cli([...args, '--help']);
    assert.deepEqual([code, err], [0, ''], args.join(' '));
    assert.match(out, /^Usage: plumbline/);
  }
  assert.match((await cli(['--version'])).out, /^\d+\.\d+\.\d+\n$/);
});

test('a wrong call is exit code 2 and says what is allowed, before anything is loaded', async () => {
  for (const [args, message] of [
    [['frobnicate'], /unknown command 'frobnicate'/],
    [['serve', '--frobnicate'], /unknown option '--frobnicate'/],
    [['serve', '--port', '70000'], /--port .*70000.*integer from 0 to 65535/],
    [['serve', '--port', '8080x'], /--port/],
    [['serve', '--port'], /argument missing/],
    [['serve', 'extra'], /too many arguments/],
    [['run', 'a', 'b'], /too many arguments/],
    [['serve', '--backend', 'gpu'], /one of auto, cpu, wasm, reference/],
    [['serve', '--dtype', 'f16'], /one of auto, f32, bf16, bf16-mtplx/],
    [['serve', '--temperature', '3'], /number from 0 to 2/],
    [['serve', '--seed', '18446744073709551616'], /18446744073709551615/],
    [['serve', '--api-key', ''], /non-empty key/],
    [['serve', '--max-body-mib', '0'], /number from/],
    [['run'], /no prompt/],
    [['verify', 'golden'], /missing required argument/],
    [['supervise'], /missing required argument/],
    [['supervise', '--memory-mib', '-1', '--', 'true'], /--memory-mib .*-1.*number from 0/],
    [['supervise', '--memory-mib', '1GB', '--', 'true'], /--memory-mib .*1GB.*number from 0/],
    [['supervise', '--idle-s', 'never', '--', 'true'], /--idle-s .*never.*number from 0/],
    [['supervise', '--total-s', 'NaN', '--', 'true'], /--total-s .*NaN.*number from 0/],
    [['supervise', '--grace-s', '3601', '--', 'true'], /--grace-s .*number from 0 to 3600/],
    [['supervise', 'node', '-e', '1'], /unknown option '-e'/],
  ] as const) {
    const { code, out, err } = await cli(args);
    assert.deepEqual([code, out], [2, ''], args.join(' '));
    assert.match(err, message);
    assert.ok(!err.includes('    at '), 'no stack');
  }
  const { code, err } = await cli(['serve'], { environment: { PLUMBLINE_PORT: 'http' } });
  assert.deepEqual([code, err], [2, 'error: PLUMBLINE_PORT must be an integer from 0 to 65535 [invalid_option]\n']);
});

test('a failure is one line and exit code 1, or one JSON object; a stack only for debugging', async () => {
  const plain = await cli(['run', '--model', '/nowhere', 'hi']);
  assert.deepEqual([plain.code, plain.out], [1, '']);
  assert.equal(plain.err, 'error: /nowhere is no checkpoint folder: it has no config.json [checkpoint_not_found]\n');
  const json = await cli(['run', '--json', '--model', '/nowhere', 'hi']);
  assert.equal((JSON.parse(json.err) as { error: { code: string } }).error.code, 'checkpoint_not_found');
  assert.match((await cli(['run', '--log-level', 'debug', '--model', '/nowhere', 'hi'])).err, /\n {4}at /);
});

test('run answers on stdout and nothing else there; from an argument, from stdin, as JSON', async () => {
  const direct = await cli(['run', question, '--temperature', '0']);
  assert.deepEqual([direct.code, direct.err], [0, '']);
  assert.match(direct.out, answer);
  assert.ok(direct.out.endsWith('\n') && !direct.out.endsWith('\n\n'));
  assert.equal((await cli(['run', '--temperature', '0'], { input: question })).out, direct.out);
  const json = await cli(['run', '-', '--json', '--temperature', '0', '--seed', '7'], { input: question });
  const body = JSON.parse(json.out) as { choices: { message: { content: string } }[]; plumbline: { seed: string } };
  assert.deepEqual([`${body.choices[0]?.message.content}\n`, body.plumbline.seed], [direct.out, '7']);
  const raw = await cli([
    'run',
    '--raw',
    'export function add(a, b) {',
    '--temperature',
    '0',
    '--max-tokens',
    '4',
    '--stop',
    '}',
  ]);
  assert.equal(raw.code, 0);
});

test('on a terminal run shows what goes on, on stderr, and takes it away again', async () => {
  const { out, err } = await cli(['run', question, '--temperature', '0'], { terminal: true });
  assert.match(out, answer);
  assert.match(err, /loading \d+ %/);
  assert.match(err, /\[\d+ \+ \d+ tokens.*, stop, seed \d+\]\n$/);
});

test('an interrupt ends run with code 130', async () => {
  const long = await cli(['run', '--raw', 'const a = ', '--max-tokens', '2000', '--seed', '1'], {
    onOut: (_, interrupt) => interrupt(),
  });
  assert.deepEqual([long.code, long.err.trim()], [130, 'interrupted']);
});

test('serve tells the plan, the backend and how to call it; the printed curl line works; an interrupt stops it', async () => {
  let answered: Promise<string> | undefined;
  const { code, out } = await cli(['serve', '--port', '0', '--log-level', 'silent'], {
    onOut: (written, interrupt) => {
      if (answered !== undefined || !written.includes('curl')) return;
      answered = runCurlLine(written).finally(interrupt);
    },
  });
  assert.equal(code, 0);
  assert.match(out, /^backend {2}\w+ \(\w+, \d+ threads?\): .+/m);
  assert.match(out, /^ {2}weights +[\d.]+ MiB/m);
  assert.match(out, /^model {4}plumbline-tiny /m);
  assert.match(out, /^listening on http:\/\/127\.0\.0\.1:\d+$/m);
  assert.match(out, /stopping\nstopped\n$/);
  assert.match((await answered) ?? '', /"object":"chat.completion"/);
});

/** Does what the printed line says, without needing curl on the machine. */
async function runCurlLine(out: string): Promise<string> {
  const [, url = ''] = /^curl (\S+)/m.exec(out) ?? [];
  const [, body = ''] = /-d '(.*)'$/m.exec(out) ?? [];
  const response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  return response.text();
}

test('serve with --json says the same as one object a line', async () => {
  const { code, out } = await cli(['serve', '--port', '0', '--json', '--log-level', 'silent'], {
    onOut: (written, interrupt) => {
      if (written.includes('"listening"') && !written.includes('"stopping"')) interrupt();
    },
  });
  const events = out
    .trim()
    .split('\n')
    .map((line) => (JSON.parse(line) as { event: string }).event);
  assert.deepEqual([code, events], [0, ['memory-plan', 'listening', 'stopping', 'stopped']]);
});

test('a second interrupt ends the requests that still run, and serve with code 130', async () => {
  let answered: Promise<string> | undefined;
  const args = ['serve', '--port', '0', '--shutdown-timeout-s', '600', '--log-level', 'silent'];
  const { code } = await cli(args, {
    onOut: (written, interrupt) => {
      const url = /listening on (\S+)/.exec(written)?.[1];
      if (url !== undefined) answered ??= longAnswer(url, interrupt);
    },
  });
  assert.equal(code, 130);
  assert.match((await answered) ?? '', /"code":"shutting_down"/);
});

/** Asks for an answer that does not end soon; interrupts twice when it has begun. */
async function longAnswer(url: string, interrupt: () => void): Promise<string> {
  const response = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    // Negative penalties favour what was drawn before, so a stop token is not met for long.
    body: JSON.stringify({
      model: 'plumbline-tiny',
      prompt: 'const',
      temperature: 2,
      presence_penalty: -2,
      frequency_penalty: -2,
      seed: 1,
      stream: true,
    }),
  });
  interrupt();
  interrupt();
  return response.text();
}

test('a taken port is told before the model is loaded', async () => {
  let second: Promise<Ran> | undefined;
  await cli(['serve', '--port', '0', '--log-level', 'silent'], {
    onOut: (written, interrupt) => {
      const port = /listening on \S+:(\d+)/.exec(written)?.[1];
      if (port !== undefined) second ??= cli(['serve', '--port', port]).finally(interrupt);
    },
  });
  const { code, out, err } = (await second) ?? { code: -1, out: '', err: '' };
  assert.deepEqual([code, out], [1, '']);
  assert.match(err, /address_in_use/);
});

test('verify plan prints the plan of a forward, with the lowering that its phase asks for', async () => {
  const decode = await cli(['verify', 'plan', '--backend', 'reference']);
  assert.equal(decode.code, 0);
  assert.match(decode.out, /^qwen4_exp trunk\/standalone\/strict\/bf16\/fma\/rows<=1\/out<=1\n/);
  assert.match(decode.out, /hcAct .*lowering=standalone/);
  const verify = await cli([
    'verify',
    'plan',
    '--backend',
    'reference',
    '--phase',
    'verify',
    '--rows',
    '4',
    '--dtype',
    'f32',
    '--json',
  ]);
  const plan = JSON.parse(verify.out) as { key: string; lines: string[] };
  assert.match(plan.key, /fused\/strict\/f32/);
  assert.ok(plan.lines.some((line) => /hcAct .*lowering=fused/.test(line)));
  const uniform = await cli([
    'verify',
    'plan',
    '--backend',
    'reference',
    '--phase',
    'verify',
    '--gate-policy',
    'uniform',
  ]);
  assert.match(uniform.out, /^qwen4_exp trunk\/fused\/uniform\//);
  assert.doesNotMatch(uniform.out, /lowering=fused/);
});

test('verify prints one line a case with its figures, and fails when any falls short or cannot be judged', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'plumbline-verify-'));
  t.after(async () => rm(folder, { recursive: true }));
  const good = join(packageRoot(), 'test', 'fixtures', 'sampler', 'pcg64.jsonl.gz');
  const passed = await cli(['verify', 'fixtures', good]);
  assert.equal(passed.code, 0);
  assert.match(passed.out, /^ok .*pcg64\.jsonl\.gz {2}sampler\/pcg64: \d+ cases, \d+ checks, 0 failures/);
  const lines = gunzipSync(await readFile(good)).toString();
  const damaged = join(folder, 'pcg64.jsonl');
  await writeFile(damaged, lines.replace(/"seed":"(\d+)"/, '"seed":"99$1"'));
  const failed = await cli(['verify', 'fixtures', '--json', good, damaged]);
  assert.equal(failed.code, 1);
  assert.deepEqual(
    failed.out
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { outcome: string }).outcome),
    ['passed', 'failed'],
  );
  const unknown = join(folder, 'x.jsonl');
  await writeFile(unknown, '{"hello":1}\n');
  const refused = await cli(['verify', 'fixtures', unknown]);
  assert.deepEqual([refused.code, refused.out], [1, '']);
  assert.match(refused.err, /x\.jsonl:1: of no known fixture format/);
});

test('verify golden judges the embedded model by the answers recorded with it', async () => {
  const { code, out } = await cli(['verify', 'golden', embeddedModelFolder()]);
  assert.equal(code, 0, out);
  assert.match(out, /^ok .*plumbline-tiny {2}qwen4_exp f32 \w+: .*first-logits [\d.e-]+ \(limit 0\.00005\)/);
});

test('the executable serves, and ends on SIGTERM with nothing left behind', async () => {
  const child = spawn(
    process.execPath,
    [join(packageRoot(), 'dist', 'src', 'cli', 'main.js'), 'serve', '--port', '0', '--json'],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  const exit = once(child, 'exit');
  let out = '';
  for await (const chunk of child.stdout) {
    out += String(chunk);
    if (out.includes('"listening"') && !out.includes('"stopping"')) child.kill('SIGTERM');
  }
  assert.deepEqual(await exit, [0, null]);
  assert.match(out, /"event":"stopped"/);
});
