/** What a row of the op table is: a code, an ordered list of typed fields, and words. */

export type FieldKind =
  /** Word (4-byte) offset of a buffer in the workspace. */
  | 'buffer'
  /** As `buffer`, or -1 for none. */
  | 'buffer?'
  /** Index into the plan's weight table. */
  | 'weight'
  /** As `weight`, or -1 for none. */
  | 'weight?'
  /** A plain integer. */
  | 'int'
  /** Bits of a float32. */
  | 'float'
  /** Byte offset in the fixed slab of a state. */
  | 'fixed'
  /** Byte offset in a page of a state. */
  | 'page'
  /** 0: standalone, 1: fused. */
  | 'lowering';

export interface OpField<Name extends string = string> {
  readonly name: Name;
  readonly kind: FieldKind;
}

export interface OpSpec {
  readonly code: number;
  /** Fields in the order of the encoding, after the op's code and its length in words (these two included). */
  readonly fields: readonly OpField[];
  /** Repeated at the end, preceded by nothing: the count is a field of its own, named `segments`. */
  readonly repeated?: readonly OpField[];
  readonly doc: string;
}

/** The field names of a description such as `rows in:buffer eps:float`, as a type. */
type NamesIn<Text extends string> = Text extends `${infer Head} ${infer Rest}`
  ? NamesIn<Head> | NamesIn<Rest>
  : NameIn<Text>;
type NameIn<Item extends string> = Item extends `${infer Name}:${string}` ? Name : Item;

/** The fields of a description such as `rows in:buffer eps:float`; no kind stands for `int`. */
export const fields = <const Text extends string>(text: Text): OpField<NamesIn<Text>>[] =>
  text.split(' ').map((item) => {
    const [name = '', kind = 'int'] = item.split(':');
    return { name: name as NamesIn<Text>, kind: kind as FieldKind };
  });
