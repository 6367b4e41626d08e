/**
 * A server that ends at a named point of a failure, as if its machine had been killed there. Its parent looks at the folder.
 *
 * Arguments: folder, and a `CrashCase` as JSON. Says one line of JSON before the failing request, and ends by SIGKILL; with
 * status 3 when the point was not reached.
 */
import type { ContainmentPoint } from '../../src/sessions/containment/contain.js';
import { ContainedServer, PLANTS, type Message, type Target } from './contained-server.js';

export interface CrashCase {
  readonly options: object;
  readonly more: object;
  readonly target: Target;
  readonly earlier: 'persisted' | 'pending';
  /** A moment of containment, or the beginning of the name of a step of the file layer. */
  readonly point?: ContainmentPoint;
  readonly step?: string;
  /** The step is one of the next, healthy turn. */
  readonly nextTurn?: boolean;
}

export interface CrashStory {
  readonly messages: readonly Message[];
  readonly bystander: readonly Message[];
}

export const CRASHING = 'crashing';
export const BYSTANDER = 'bystander';

async function run(folder: string, test: CrashCase): Promise<void> {
  let armed = false;
  const end = (): void => void process.kill(process.pid, 'SIGKILL');
  const server = await ContainedServer.open(test.options, folder, {
    containmentPoint: (point) => (armed && point === test.point ? end() : undefined),
  });
  const first = (session: string): Message => ({
    role: 'user',
    content: `${session}. ${'What does path.join do? '.repeat(14)}`,
  });
  const turn = async (session: string): Promise<Message[]> => {
    const ask = first(session);
    const { text } = await server.ask(session, [ask], test.more);
    return [ask, { role: 'assistant', content: text }, { role: 'user', content: 'What does fs.readFile do?' }];
  };
  const bystander = await turn(BYSTANDER);
  await server.flush();
  if (test.earlier === 'pending') server.gate.shut();
  const messages = await turn(CRASHING);
  if (test.earlier === 'persisted') await server.flush();
  process.stdout.write(`${JSON.stringify({ messages, bystander } satisfies CrashStory)}\n`);
  const arm = (): void => {
    armed = true;
    const { step } = test;
    if (step === undefined) return;
    server.gate.files.plan = { at: (name) => name.startsWith(step), fault: { kind: 'call', act: end } };
  };
  if (test.nextTurn !== true) arm();
  server.spoiler.aim(CRASHING, test.target, PLANTS[0]);
  await server.ask(CRASHING, messages, test.more);
  server.spoiler.rest();
  if (test.nextTurn === true) {
    arm();
    await server.ask(CRASHING, messages, test.more);
    await server.flush();
  }
  process.exit(3);
}

const [, , folder, test] = process.argv;
if (folder !== undefined && test !== undefined) await run(folder, JSON.parse(test) as CrashCase);
