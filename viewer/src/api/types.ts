/** The words of the API. All of them are derived from the server's own types: see `make generated`. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Num = number | string | null;
export type Status = Schemas["Status"];
export type ListedRun = Schemas["ListedRun"];
export type RolloutRow = Schemas["RolloutRow"];

/** Fields that the rows of a selection always have: what lists show. */
export const LISTED = [
  "project",
  "run",
  "split",
  "step",
  "task",
  "dataset",
  "environment",
  "launch",
  "group",
  "index",
  "attempt",
  "reward",
  "advantage",
  "fate",
  "stop_reason",
  "response_tokens",
  "turns",
  "open",
  "labels",
  "flags",
  "prompt_preview",
  "preview",
] as const satisfies (keyof RolloutRow)[];
/** A row of a selection. Other fields are there if the table shows them. */
export type ListedRow = Pick<RolloutRow, "id" | (typeof LISTED)[number]> & Partial<RolloutRow> & { named?: Record<string, unknown> };
/** A window of a selection that was asked for with what every list shows. */
export type ListedPage = Omit<Schemas["ListedPage"], "rows"> & { rows: ListedRow[] };
export type Detail = Schemas["Detail"];
export type Outline = Schemas["Outline"];
export type Note = Schemas["Note"];
export type Body = Schemas["Body"];
export type Bodies = Schemas["Bodies"];
export type Passage = Schemas["Passage"];
export type TextWindow = Schemas["TextWindow"];
export type ShownPart = Schemas["ShownPart"];
export type ShownCall = Schemas["ShownCall"];
export type TokenBlock = Schemas["TokenBlock"];
export type TokenBlocks = Schemas["TokenBlocks"];
export type Strip = Schemas["Strip"];
export type ShownSpan = Schemas["ShownSpan"];
export type Spans = Schemas["Spans"];
export type ShownNeighbours = Schemas["ShownNeighbours"];
export type Start = Schemas["Start"];
export type Facets = Schemas["Facets"];
export type NamedKey = Schemas["NamedKey"];
export type Names = Schemas["Names"];
export type Histogram = Schemas["Histogram"];
export type Histograms = Schemas["Histograms"];
export type StepNumbers = Schemas["StepNumbers"];
export type RibbonRun = Schemas["RibbonRun"];
export type Ribbon = Schemas["Ribbon"];
export type Alarm = Schemas["Alarm"];
export type Task = Schemas["Task"];
export type Tasks = Schemas["Tasks"];
export type Matrix = Schemas["Matrix"];
export type MatrixColumn = Schemas["MatrixColumn"];
export type TaskCells = Schemas["TaskCells"];
export type Cell = Schemas["Cell"];
export type History = Schemas["History"];
export type Tally = Schemas["Tally"];
export type Funnel = Schemas["Funnel"];
export type Failures = Schemas["Failures"];
export type CheckCount = Schemas["CheckCount"];
export type ShownFinding = Schemas["ShownFinding"];
/** A bundle knows only what was found. */
export interface Checks {
  total: number;
  checks: (Pick<CheckCount, "check" | "found"> & Partial<CheckCount>)[];
}
export type Compared = Schemas["Compared"];
export type Aligned = Schemas["Aligned"];
export type Side = Schemas["Side"];
export type ShownWords = Schemas["ShownWords"];
export type Hit = Schemas["Hit"];
export type Hits = Schemas["Hits"];
export type ListedKey = Schemas["ListedKey"];
export type Keys = Schemas["Keys"];
export type Values = Schemas["ShownFacet"];
export type Label = Schemas["Label"];
export type Refusal = Schemas["Refusal"];
/** What a running text search tells while it goes on. */
export type SearchNews = Schemas["SearchNews"];
/** What a running job's store tells. */
export type News = Schemas["News"];
