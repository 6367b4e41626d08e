/**
 * Puts rows of the option table (src/config.ts) onto a command, and takes its values back, checked.
 */
import { InvalidArgumentError, Option, type Command } from 'commander';
import {
  OPTIONS,
  optionsFromEnvironment,
  parseOption,
  resolveOptions,
  type GivenOptions,
  type Kind,
  type OptionName,
  type Options,
} from '../config.js';
import { PlumblineError } from '../errors.js';
import type { CliIo } from './io.js';

export function addOptions(command: Command, names: readonly OptionName[]): Command {
  for (const name of names) command.addOption(toFlag(name));
  return command;
}

function toFlag(name: OptionName): Option {
  const { flag, help, default: fallback, env } = OPTIONS[name];
  const shown = fallback === undefined || fallback === false || (Array.isArray(fallback) && fallback.length === 0);
  // The default is told, not set: commander would make it look like a given value, above the environment.
  const option = new Option(flag, `${help}${shown ? '' : ` (default: ${String(fallback)})`} [${env}]`);
  if (!option.isBoolean()) {
    option.argParser((text: string, before: unknown) => {
      try {
        const collects = option.variadic || (OPTIONS[name].kind as Kind<unknown>).collects === true;
        const value = parseOption(name, collects ? [text] : text);
        return collects && Array.isArray(before) ? [...(before as unknown[]), ...(value as unknown[])] : value;
      } catch (thrown) {
        throw thrown instanceof PlumblineError ? new InvalidArgumentError(`It ${rule(name)}.`) : thrown;
      }
    });
  }
  return option;
}

const rule = (name: OptionName): string => `must be ${OPTIONS[name].kind.rule}`;

/** Every option: flags over environment over defaults. Throws `invalid_option`. */
export function readOptions(command: Command, io: CliIo): Options {
  const flags = command.optsWithGlobals<GivenOptions>();
  return resolveOptions({ ...optionsFromEnvironment(io.environment), ...flags });
}
