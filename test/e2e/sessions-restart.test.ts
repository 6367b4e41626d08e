/** Named conversations over a restart: answers are put back with their tokens, out of what was stored with the turns. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test, type TestContext } from 'node:test';
import type { GivenOptions } from '../../src/config.js';
import type { SessionBlock } from '../../src/api/session-block.js';
import type { CheckpointHeader } from '../../src/sessions/checkpoints/checkpoint-format.js';
import { Tokenizer } from '../../src/tokens/tokenizer.js';
import { ContainedServer } from '../support/contained-server.js';
import { MODEL, withEmbeddedServer, type EmbeddedServer } from '../support/embedded-server.js';
import { EMBEDDED_MODEL, temporaryFolder } from '../support/repository.js';

interface WireMessage {
  readonly role: string;
  readonly content: string | null;
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly { readonly id: string; readonly function: { name: string; arguments: string } }[];
  readonly tool_call_id?: string;
}

interface Answer {
  readonly message: WireMessage;
  readonly cached: number;
  readonly whole: number;
  readonly session: SessionBlock;
}

const TOOLS = [{ type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } }];
const user = (content: string): WireMessage => ({ role: 'user', content });

let tokenizer: Tokenizer;
before(async () => {
  tokenizer = await Tokenizer.load(EMBEDDED_MODEL);
});

/** What the model is made to say, by the last message of the prompt; everything else it says itself. */
const SCRIPT: Readonly<Record<string, string>> = {
  'Is it warm in Paris?':
    'I should ask.\n</think>\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 1.0}}\n</tool_call><|im_end|>',
  'Sunny, 20 degrees': 'The tool says so.\n</think>\n\nYes, it is.<|im_end|>',
};

class Talk {
  said: number[] = [];
  readonly messages: WireMessage[] = [];

  async open(t: TestContext, options: GivenOptions): Promise<EmbeddedServer> {
    return withEmbeddedServer(
      t,
      { context: 1024, sessionMinFreeMib: 0, ...options },
      {
        rowHook: (row, { site, step }) => {
          const id = this.said[step];
          if (id === undefined || (site !== 'prefill_frontier' && site !== 'ar_step')) return;
          row.fill(-20);
          row[id] = 20;
        },
      },
    );
  }

  /** One turn of it. @param resend how the client keeps the answer */
  async turn(
    server: EmbeddedServer,
    message: WireMessage,
    { more = {}, session = 'talk', resend = (given: WireMessage) => given }: TurnOptions = {},
  ): Promise<Answer> {
    this.messages.push(message);
    this.said = [...tokenizer.encode(SCRIPT[message.content ?? ''] ?? '')];
    const body = { model: MODEL, temperature: 0, max_tokens: 48, ...more, messages: this.messages };
    const response = await server.post('/v1/chat/completions', body, { headers: { 'x-session-id': session } });
    const json = (await response.json()) as {
      choices: { message: WireMessage }[];
      usage: { total_tokens: number; prompt_tokens_details: { cached_tokens: number } };
      plumbline: { session: SessionBlock };
    };
    assert.equal(response.status, 200, JSON.stringify(json));
    const given = json.choices[0]!.message;
    this.messages.push(resend(given));
    const { total_tokens: whole, prompt_tokens_details: details } = json.usage;
    return { message: given, cached: details.cached_tokens, whole, session: json.plumbline.session };
  }
}

interface TurnOptions {
  readonly more?: object;
  readonly session?: string;
  readonly resend?: (given: WireMessage) => WireMessage;
}

/** Reasoning left out, arguments printed anew: text from which the tokens of then cannot be made again. */
const forgetful = ({ reasoning_content: _, ...given }: WireMessage): WireMessage => ({
  ...given,
  ...(given.tool_calls && {
    tool_calls: given.tool_calls.map((call) => ({
      ...call,
      function: { ...call.function, arguments: JSON.stringify(JSON.parse(call.function.arguments)) },
    })),
  }),
});

const thinking = { chat_template_kwargs: { enable_thinking: true }, tools: TOOLS };

/** A call with reasoning, its result, and a last question, before which `between` gives the server to ask. */
async function withCalls(talk: Talk, first: EmbeddedServer, between: () => Promise<EmbeddedServer>) {
  const options = { more: thinking, resend: forgetful };
  const call = await talk.turn(first, user('Is it warm in Paris?'), options);
  await first.models[0]!.sessions.store?.flush(10_000);
  const { id } = call.message.tool_calls![0]!;
  const result = { role: 'tool', content: 'Sunny, 20 degrees', tool_call_id: id };
  const said = await talk.turn(first, result, options);
  assert.deepEqual([said.session.spliced_turns, said.cached], [1, call.whole]);
  assert.equal(said.message.reasoning_content, 'The tool says so.');
  const last = await talk.turn(await between(), user('And what does fs.stat do?'), options);
  return { said, last };
}

test('reasoning and tool calls: the turn after a restart begins where it would have without one', async (t) => {
  for (const sessionRamMib of [64, 0]) {
    const undisturbed = new Talk();
    const one = await undisturbed.open(t, {});
    const { last: expected } = await withCalls(undisturbed, one, async () => one);
    assert.equal(expected.session.spliced_turns, 2);

    const talk = new Talk();
    const options = { sessionDir: temporaryFolder(t, 'restart'), sessionRamMib };
    const first = await talk.open(t, options);
    const { said, last } = await withCalls(talk, first, async () => {
      await first.close();
      return talk.open(t, options);
    });
    assert.deepEqual([last.session.restore, last.session.from], ['restored', 'disk'], JSON.stringify(last.session));
    assert.deepEqual([last.cached, last.whole], [said.whole, expected.whole]);
    assert.deepEqual([last.session.spliced_turns, last.session.splice_declined], [2, null]);
    assert.deepEqual(last.message, expected.message);
  }
});

test('a speculated conversation of several turns, regenerated and forked, is known again; other names are not', async (t) => {
  const options = { sessionDir: temporaryFolder(t, 'restart'), gatePolicy: 'uniform' } as const;
  const more = { speculation: 'plain', ...{ chat_template_kwargs: { enable_thinking: true } } };
  const talk = new Talk();
  const first = await talk.open(t, options);
  const turns: Answer[] = [];
  for (const question of ['What does fs.readFileSync do?', 'And fs.writeFileSync?', 'And fs.appendFileSync?']) {
    turns.push(await talk.turn(first, user(question), { more, resend: forgetful }));
  }
  const history = [...talk.messages];
  const forked = new Talk();
  forked.messages.push(...history.slice(0, 2));
  const fork = await forked.turn(first, user('And path.join?'), { more, resend: forgetful });
  assert.equal(fork.cached, turns[0]!.whole);
  await first.close();

  const second = await talk.open(t, options);
  const next = await talk.turn(second, user('Thanks. And fs.rm?'), { more });
  assert.deepEqual([next.cached, next.session.spliced_turns, next.session.from], [turns[2]!.whole, 3, 'disk']);
  const forkNext = await forked.turn(second, user('Thanks. And fs.rm?'), { more });
  assert.deepEqual([forkNext.cached, forkNext.session.spliced_turns], [fork.whole, 2]);
  const elsewhere = new Talk();
  elsewhere.messages.push(...history);
  const other = await elsewhere.turn(second, user('Thanks. And fs.rm?'), { more, session: 'another' });
  assert.deepEqual([other.session.spliced_turns, other.session.splice_declined], [0, 'unknown_turn']);
});

test('a damaged note: nothing is put back, the reason is told, the checkpoint goes, and the answer is a cold one', async (t) => {
  const folder = temporaryFolder(t, 'restart');
  const talk = new Talk();
  const first = await talk.open(t, { sessionDir: folder });
  await talk.turn(first, user('What does fs.readFileSync do?'), { more: thinking, resend: forgetful });
  const history = [...talk.messages];
  await first.close();
  for (const name of readdirSync(join(folder, 'checkpoints'))) flipNote(join(folder, 'checkpoints', name));

  const second = await talk.open(t, { sessionDir: folder });
  const answer = await talk.turn(second, user('And fs.rm?'), { more: thinking });
  assert.deepEqual([answer.session.splice_declined, answer.session.spliced_turns], ['note_unreadable', 0]);
  assert.deepEqual([answer.session.restore, answer.cached], ['no-match', 0]);
  const { disk } = second.models[0]!.sessions.health();
  assert.equal(disk?.rejected.checkpoint_damaged, 1);
  const cold = new Talk();
  cold.messages.push(...history);
  const without = await cold.open(t, { sessions: 'off' });
  const again = await cold.turn(without, user('And fs.rm?'), { more: thinking });
  assert.deepEqual(answer.message, again.message);
});

test('an imported session is known in a server that knows the name already', async (t) => {
  const talk = new Talk();
  const [from, to] = [temporaryFolder(t, 'restart-from'), temporaryFolder(t, 'restart-to')];
  const source = await talk.open(t, { sessionDir: from });
  const known = await talk.turn(source, user('What does fs.readFileSync do?'), { more: thinking, resend: forgetful });
  await source.models[0]!.sessions.store!.flush(10_000);
  const file = await (await fetch(`${source.url}/v1/plumbline/session-files/talk`)).arrayBuffer();
  await source.close();

  const other = new Talk();
  const target = await other.open(t, { sessionDir: to });
  await other.turn(target, user('Something else'));
  const imported = await fetch(`${target.url}/v1/plumbline/sessions`, {
    method: 'POST',
    headers: { 'content-type': 'application/vnd.plumbline.session' },
    body: file,
  });
  assert.equal(imported.status, 200);
  other.messages.splice(0, Infinity, ...talk.messages);
  const next = await other.turn(target, user('And fs.rm?'), { more: thinking });
  assert.deepEqual([next.cached, next.session.spliced_turns], [known.whole, 1], JSON.stringify(next.session));
});

test('without memory for sessions a disk that stands still delays nobody, holds what was planned, and loses no newest turn', async (t) => {
  const folder = temporaryFolder(t, 'slow-disk');
  const options = { sessionRamMib: 0, context: 256, parallel: 2 };
  const server = await ContainedServer.open(options, folder);
  t.after(() => server.close());
  server.gate.shut();
  const names = Array.from({ length: 14 }, (_, i) => `talk-${i}`);
  const asked = (name: string) => [
    { role: 'user' as const, content: `${name}. ${'What does fs.stat do? '.repeat(20)}` },
  ];
  const more = { max_tokens: 4 };
  const texts = new Map<string, string>();
  for (let i = 0; i < names.length; i += 2) {
    const answers = names.slice(i, i + 2).map((name) => server.ask(name, asked(name), more));
    for (const { status, session, text } of await Promise.all(answers)) {
      texts.set(session!.id, text);
      assert.deepEqual([status, session?.stored], [200, { ram: 'off', disk: 'queued' }]);
    }
  }
  const told = server.server.health().models[0]!;
  const planned = told.memory.plan.find(({ name }) => name === 'sessions being saved');
  const { waiting, waiting_bytes: held = Infinity, not_stored: refused } = told.sessions.disk ?? {};
  assert.ok(planned?.counted === true && held <= planned.bytes, `${held} bytes of ${planned?.bytes}`);
  assert.ok(waiting! > 0 && waiting! <= 8, `${waiting} wait`);
  assert.equal(refused?.queue_full, 13 - waiting!);
  server.gate.open();
  await server.flush();
  assert.equal(server.sessions.store!.health().waiting_bytes, 0);
  for (const name of names.slice(-2)) {
    const answer = { role: 'assistant' as const, content: texts.get(name)! };
    const next = [...asked(name), answer, { role: 'user' as const, content: 'And?' }];
    const { cached, session, error } = await server.ask(name, next, more);
    assert.deepEqual([session?.restore, cached > 0], ['restored', true], JSON.stringify(session ?? error));
  }
});

/** One bit of the note of a checkpoint, which must have one. */
function flipNote(path: string): void {
  const bytes = readFileSync(path);
  const end = 20 + bytes.readUInt32LE(12);
  const { sections } = JSON.parse(bytes.subarray(20, end).toString()) as CheckpointHeader;
  const number = sections.findIndex(({ name }) => name === 'note');
  assert.ok(number >= 0, 'it has a note');
  const at = sections.slice(0, number).reduce((sum, section) => sum + section.bytes, end);
  bytes[at + (sections[number]!.bytes >> 1)]! ^= 4;
  writeFileSync(path, bytes);
}
