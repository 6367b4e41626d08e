/** `plumbline sessions`, on the folder of a stopped server and on a running one. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { cli } from '../support/cli.js';
import { ContainedServer } from '../support/contained-server.js';

const sessions = async (...args: readonly string[]) => cli(['sessions', ...args]);

function folderOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'plumbline-command-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function served(t: TestContext, folder: string, names: readonly string[] = []): Promise<ContainedServer> {
  const server = await ContainedServer.open({}, folder);
  t.after(() => server.close());
  for (const name of names) {
    await server.ask(name, [{ role: 'user', content: `${name}. What does path.join do?` }], { max_tokens: 4 });
  }
  await server.flush();
  return server;
}

test('the same commands work on a running server, found by its folder, and on the folder when it is stopped', async (t) => {
  const folder = folderOf(t);
  const server = await served(t, folder, ['one', 'two', 'three']);
  const at = ['--session-dir', folder];
  const running = await sessions('ls', ...at);
  assert.equal(running.code, 0, running.err);
  assert.match(running.out, /one +ready +\d+ tokens, .*MiB +\d+ tokens/);
  assert.deepEqual((await sessions('ls', '--url', server.server.url)).out, running.out);
  const removed = await sessions('rm', 'two', ...at, '--json');
  assert.equal((JSON.parse(removed.out) as { deleted: boolean }).deleted, true);
  assert.deepEqual(server.traces('two'), []);
  assert.deepEqual((await server.ask('two', [{ role: 'user', content: 'two. What?' }])).session?.reason, 'no_entry');
  const file = join(folder, '..', `plumbline-export-${process.pid}`);
  t.after(() => rmSync(file, { force: true }));
  assert.equal((await sessions('export', 'one', file, ...at)).code, 0);
  const fromServer = readFileSync(file);
  await server.close();

  const stopped = await sessions('ls', ...at);
  assert.match(stopped.out, /one +ready +- +\d+ tokens/);
  assert.match((await sessions('show', 'three', ...at)).out, /turn +ar +\d+ tokens/);
  rmSync(file);
  assert.equal((await sessions('export', 'one', file, ...at)).code, 0);
  assert.equal(readFileSync(file).byteLength, fromServer.byteLength);
  assert.equal((await sessions('rm', 'one', ...at)).code, 0);
  assert.doesNotMatch((await sessions('ls', ...at)).out, /^one /m);

  const elsewhere = folderOf(t);
  const taken = await sessions('import', file, '--session-dir', elsewhere);
  assert.deepEqual([taken.code, taken.err], [0, '']);
  assert.match((await sessions('ls', '--session-dir', elsewhere)).out, /^one +ready/m);
  assert.equal((await sessions('import', file, ...at)).code, 0, 'what was only removed may come back');
  assert.equal((await sessions('rm', 'one', ...at)).code, 0);
  assert.match((await sessions('gc', ...at)).out, /0 checkpoints went/);
  assert.match((await sessions('rm', '--all', ...at)).out, /three: dropped 0 in memory, 1 on disk/);
  assert.match((await sessions('ls', ...at)).out, /no sessions are kept/);
});

test('what cannot be done says why, and leaves nothing behind', async (t) => {
  const folder = folderOf(t);
  const at = ['--session-dir', folder];
  for (const [args, code, words] of [
    [['ls'], 2, /give --session-dir, or --url/],
    [['show', 'nobody', ...at], 1, /\[session_not_found\]/],
    [['rm', ...at], 2, /name the sessions to drop, or give --all/],
    [['rm', 'one', '--all', ...at], 2, /not both/],
    [['export', 'nobody', join(folder, 'file'), ...at], 1, /\[session_not_found\]/],
    [['import', join(folder, 'missing'), ...at], 1, /missing cannot be used: ENOENT/],
    [['ls', '--url', 'http://127.0.0.1:1'], 1, /\[server_unreachable\]/],
  ] as const) {
    const ran = await sessions(...args);
    assert.deepEqual([ran.code, words.test(ran.err)], [code, true], `${args.join(' ')}: ${ran.err}`);
  }
  assert.ok(!existsSync(join(folder, 'file')) && !existsSync(join(folder, 'file.partial')));
  const bad = join(folderOf(t), 'bad');
  writeFileSync(bad, 'no session');
  assert.match((await sessions('import', bad, ...at)).err, /\[session_file_invalid\]/);
  const server = await served(t, folderOf(t));
  const overHttp = await sessions('import', bad, '--url', server.server.url);
  assert.match(overHttp.err, /\[session_file_invalid\]/);
});
