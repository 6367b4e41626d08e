/**
 * What the README tells a reader to do works: its examples get the answer that it shows, its commands, options, scripts
 * and links exist.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { OPTIONS } from '../../src/config.js';
import { withEmbeddedServer } from '../support/embedded-server.js';
import { REPOSITORY } from '../support/repository.js';

const read = (path: string): string => readFileSync(join(REPOSITORY, path), 'utf8');
const readme = read('README.md');
const shownAnswer = /^> (.*)$/m.exec(readme)?.[1] ?? '';
const runNode = promisify(execFile);

test('the curl example gets the answer that the README shows', async (t) => {
  const server = await withEmbeddedServer(t, { temperature: 0 });
  const [, path = '', body = ''] = /^curl http:\/\/127\.0\.0\.1:8080(\S+) .* -d '([^']+)'/m.exec(readme) ?? [];
  const response = await server.post(path, JSON.parse(body) as object);
  assert.equal(response.status, 200);
  const answer = (await response.json()) as { choices: { message: { content: string } }[] };
  assert.equal(answer.choices[0]?.message.content, shownAnswer);
});

test('the openai example gets the same answer', async (t) => {
  const server = await withEmbeddedServer(t, { temperature: 0 });
  const example = /```js\n([^`]+)```/.exec(readme)?.[1] ?? '';
  const code = example.replace('http://127.0.0.1:8080', server.url);
  assert.notEqual(code, example);
  const { stdout } = await runNode(process.execPath, ['--input-type=module', '-e', code], { cwd: REPOSITORY });
  assert.equal(stdout, shownAnswer);
});

test('the run example gets the same answer', async () => {
  const [, prompt = ''] = /`npx plumbline run '([^']+)'`/.exec(readme) ?? [];
  const main = join(REPOSITORY, 'dist', 'src', 'cli', 'main.js');
  const { stdout } = await runNode(process.execPath, [main, 'run', '--temperature', '0', prompt]);
  assert.equal(stdout.trim(), shownAnswer);
});

test('every command that the pages name has a help text', async () => {
  const main = join(REPOSITORY, 'dist', 'src', 'cli', 'main.js');
  const named = [...readme.matchAll(/`(?:npx )?plumbline ([a-z]+(?: [a-z]+)?)[^`]*`/g)].map(
    ([, command]) => command ?? '',
  );
  assert.ok(named.length > 3);
  for (const command of new Set(named)) {
    const { stdout } = await runNode(process.execPath, [main, ...command.split(' '), '--help']);
    assert.ok(stdout.startsWith(`Usage: plumbline ${command} `), `plumbline ${command}: ${stdout.slice(0, 80)}`);
  }
});

test('every option and npm script that the pages name exists', () => {
  const flags = new Set<string | undefined>(Object.values(OPTIONS).map((row) => row.flag.split(' ')[0]));
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
  for (const page of pages()) {
    const text = read(page);
    for (const [, flag] of text.matchAll(/`(--[a-z-]+)[^`]*`/g)) {
      assert.ok(flags.has(flag) || flag === '--help', `${page}: ${flag}`);
    }
    for (const [, script = ''] of text.matchAll(/npm run ([a-z:-]+)/g)) {
      assert.ok(script in scripts, `${page}: npm run ${script}`);
    }
  }
});

test('every relative link of the pages leads to a file', () => {
  for (const page of pages()) {
    for (const [, target = ''] of read(page).matchAll(/\]\(([^)#]+)(?:#[^)]*)?\)/g)) {
      if (/^https?:/.test(target)) continue;
      assert.ok(existsSync(join(REPOSITORY, dirname(page), target)), `${page}: ${target}`);
    }
  }
});

/** The pages at the top and under docs/. */
function pages(): string[] {
  const docs = readdirSync(join(REPOSITORY, 'docs'), { recursive: true, encoding: 'utf8' });
  const inDocs = docs.filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`);
  return ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', ...inDocs];
}
