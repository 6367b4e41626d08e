/** The chat dialects by the names under which families ask for them (`FamilyLaws.chat`). */
import type { FamilyLaws } from '../../engine/model.js';
import { argumentPairsDialect } from './argument-pairs.js';
import type { ChatDialect } from './dialect.js';
import { dsmlDialect } from './dsml.js';

const DIALECTS: Readonly<Record<NonNullable<FamilyLaws['chat']>, ChatDialect>> = {
  dsml: dsmlDialect,
  'argument-pairs': argumentPairsDialect,
};

export function chatDialect(name: FamilyLaws['chat']): ChatDialect | undefined {
  return name && DIALECTS[name];
}
