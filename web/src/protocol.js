/**
 * What crosses between the page and its worker. Each message is an array, so that calls made together arrive together:
 * calls go to the worker, replies come back. A call has any number of events, then one result or one error.
 *
 * | method       | params            | events       | result              |
 * |--------------|-------------------|--------------|---------------------|
 * | load         | LoadParams        | LoadProgress | LoadedModel         |
 * | generate     | JobFields         | JobDelta     | JobResult           |
 * | abort        | {id: number}      |              | null                |
 * | watch        | {}                | Recovery     | ErrorObject, once the device is gone for good |
 * | stats        | {}                |              | EngineStats         |
 * | snapshot     | {}                |              | EngineSnapshot      |
 * | countTokens  | {fields: JobFields} |            | {count: number}     |
 * | inspect      | {model: ModelChoice} | LoadProgress | Inspected        |
 * | fit          | {options: EngineOptions} |       | CacheFit            |
 * | storedModels | {}                |              | StoredModel[]       |
 * | removeModel  | {key: string}     |              | null                |
 * | checkCases   | CheckParams       | CheckEvent   | null                |
 * | bench        | BenchParams       | BenchEvent   | null                |
 *
 * @typedef {{id: number, method: string, params: object}} Call
 * @typedef {{id: number, event: object} | {id: number, result: unknown} | {id: number, error: ErrorObject}} Reply
 *
 * @typedef {object} ErrorObject  OpenAI's error object.
 * @property {string} message
 * @property {string} type
 * @property {string | null} param
 * @property {string | null} code
 *
 * @typedef {object} LoadParams
 * @property {ModelChoice} model
 * @property {boolean} store  Keep a copy in the browser's storage.
 * @property {EngineOptions} options
 *
 * @typedef {{builtIn: string} | {url: string} | {blob: Blob, name: string} | {stored: string}} ModelChoice
 *   `builtIn` is an address from the page's folder; `stored` is a key of the browser's storage.
 *
 * @typedef {object} EngineOptions  Fields of `pageloom.backends.webgpu.load.RunnerSettings`.
 * @property {'gpu' | 'software'} [prefer]  The kind of adapter to take.
 * @property {number} [block_size]  Tokens a page: a power of two, at least 16.
 * @property {number} [num_blocks]  Pages of the KV pool; by default as many as `kv_memory` holds.
 * @property {number} [kv_memory]  Bytes for the KV pool, over all layers.
 * @property {'float32' | 'float16' | 'float8e4m3fn'} [kv_dtype]  What the KV pool stores; by default float16.
 * @property {number} [context_length]  Tokens that one sequence may have.
 * @property {number} [max_sequences]  Sequences a step.
 *
 * @typedef {object} LoadProgress
 * @property {'python' | 'download' | 'header' | 'weights' | 'compile' | 'store'} stage
 * @property {number} done  Bytes; for "compile" programs; for "python" steps.
 * @property {number} total
 *
 * @typedef {object} LoadedModel
 * @property {string} name
 * @property {number} size  Bytes of the file.
 * @property {number} context_length  Tokens.
 * @property {string | null} stored  The key of the copy in the browser's storage.
 * @property {string[]} warnings
 * @property {{weights: number | null, kv_cache: number | null}} memory  Bytes on the device, where it tells.
 * @property {AdapterInfo} adapter
 *
 * @typedef {object} AdapterInfo
 * @property {string} vendor
 * @property {string} architecture
 * @property {string} description
 * @property {'software' | 'gpu'} adapter_class
 * @property {boolean} f16  Whether shaders have the `f16` type.
 *
 * @typedef {object} Recovery  A device was lost, and replaced: requests go on from the tokens that they have.
 * @property {'lost' | 'recovered'} state
 * @property {number} requests  How many go on.
 * @property {number} seconds  From the loss on.
 * @property {AdapterInfo} adapter
 *
 * @typedef {{role: string, content: string | {type: 'text', text: string}[]}} Message
 *
 * @typedef {object} JobFields  One prompt; exactly one of `prompt`, `messages`, `prompt_ids`.
 * @property {string} [prompt]
 * @property {Message[]} [messages]
 * @property {number[]} [prompt_ids]
 * @property {boolean} [raw]  `prompt` as it stands: no chat template, control tokens recognised.
 * @property {number} [max_tokens]
 * @property {number} [temperature]
 * @property {number} [top_p]
 * @property {number} [top_k]
 * @property {number} [min_p]
 * @property {number} [seed]
 * @property {string | string[]} [stop]
 * @property {number[]} [stop_token_ids]
 * @property {boolean} [ignore_eos]
 * @property {number} [repetition_penalty]
 * @property {number} [presence_penalty]
 * @property {number} [frequency_penalty]
 * @property {Record<string, number>} [logit_bias]
 * @property {number} [logprobs]  How many alternatives a token; 0 is the token's own only.
 * @property {string[]} [choices]  The answer is one of these.
 * @property {ResponseFormat} [response_format]  The answer is JSON.
 *
 * @typedef {{type: 'text'} | {type: 'json_object'} | {
 *   type: 'json_schema', json_schema: {name: string, schema: unknown, strict?: boolean},
 * }} ResponseFormat  As OpenAI's.
 *
 * @typedef {object} TokenLogprob
 * @property {string} token
 * @property {number[]} bytes
 * @property {number} logprob
 * @property {{token: string, bytes: number[], logprob: number}[]} top_logprobs
 *
 * @typedef {object} JobDelta  What a step added to the answer.
 * @property {string} text
 * @property {number} token_id
 * @property {TokenLogprob} [logprob]
 *
 * @typedef {object} JobUsage
 * @property {number} prompt_tokens
 * @property {number} completion_tokens
 * @property {number} cached_tokens  Prompt tokens whose pages were already computed.
 *
 * @typedef {object} JobResult
 * @property {number[]} prompt_ids
 * @property {number[]} output_ids
 * @property {string} text
 * @property {'stop' | 'length' | 'abort'} finish_reason
 * @property {JobUsage} usage
 * @property {{admitted: number | null, first_token: number | null, finished: number}} timings  Seconds since the job was
 *   submitted; it is admitted when it first has pages.
 * @property {TokenLogprob[]} [logprobs]
 * @property {Record<string, number>} [label_probabilities]  Of `choices`, in their order; they sum to 1.
 * @property {Record<string, number>} [label_logprobs]  Natural logarithms: that the model says exactly this, and ends.
 *
 * @typedef {object} EngineStats  Totals since the load, as `pageloom.engine.snapshot.EngineStats`, and what is live.
 * @property {number} running  Requests that have pages.
 * @property {number} waiting  Requests that wait for some.
 * @property {number} steps
 * @property {number} prefill_tokens
 * @property {number} decode_tokens
 * @property {number} output_tokens
 * @property {number} cached_tokens  Prompt tokens whose pages were already computed.
 * @property {number} preemptions
 * @property {number} evictions  Cached pages whose content was given up for other content.
 * @property {number} num_blocks
 * @property {number} used_blocks  In use by requests.
 * @property {number} shared_blocks  In use by more than one.
 * @property {number} peak_blocks
 * @property {number} peak_shared_blocks
 * @property {number} busy_seconds
 * @property {number} tokens_per_second  Output tokens a busy second.
 *
 * @typedef {object} BlockView
 * @property {number} id
 * @property {string[]} owners
 * @property {number} references
 * @property {number | null} serial  Of the content that is cached in it: another serial is other content.
 *
 * @typedef {object} RequestView  Lengths in tokens.
 * @property {string} id
 * @property {string} [label]  What the caller named it; the page adds it.
 * @property {number} arrival
 * @property {string} state
 * @property {number} prompt_length
 * @property {number} num_known
 * @property {number} num_committed
 * @property {number[]} block_ids
 *
 * @typedef {object} EngineSnapshot
 * @property {number} block_size  Tokens a page.
 * @property {number} num_blocks
 * @property {BlockView[]} blocks  Those that hold something; the others are free.
 * @property {RequestView[]} running
 * @property {RequestView[]} waiting
 * @property {StepView[]} steps  The last ones, in order.
 * @property {EndedView[]} ended  The requests that ended last, in that order.
 * @property {number} milliseconds  That the snapshot before this one took.
 *
 * @typedef {object} StepView
 * @property {number} index
 * @property {number} num_sequences
 * @property {number} prefill_tokens
 * @property {number} decode_tokens
 * @property {number} milliseconds
 *
 * @typedef {object} EndedView  Times in seconds since the request was submitted.
 * @property {string} id
 * @property {string} [label]  What the caller named it; the page adds it.
 * @property {number} prompt_tokens
 * @property {number} cached_tokens
 * @property {number} output_tokens
 * @property {string} finish_reason
 * @property {number | null} first_token
 * @property {number} finished
 *
 * @typedef {object} StoredModel
 * @property {string} key
 * @property {string} name
 * @property {number} size  Bytes.
 * @property {number} done  Bytes that are there.
 * @property {string | null} stored  Since when it is whole (ISO 8601); null for a download that was interrupted.
 * @property {string | null} url  Where it came from.
 *
 * @typedef {object} Inspected
 * @property {string} name
 * @property {number} size  Bytes of the file.
 * @property {number} done  Of those, what is kept in this browser.
 * @property {boolean} has_room  Whether the browser would keep the rest.
 * @property {ModelFacts | null} facts  Null where there is a refusal, or where the server sends no parts of files.
 * @property {ErrorObject | null} refusal  Why this model cannot run here.
 *
 * @typedef {object} ModelFacts  For this adapter; fields of `pageloom.backends.webgpu.fit`.
 * @property {string} name
 * @property {string} architecture
 * @property {number} context_length  Tokens.
 * @property {{num_bytes: number, largest: string, largest_bytes: number, largest_shards: number,
 *   binding_limit: number}} weights
 * @property {string[]} warnings
 *
 * @typedef {object} CacheFit  The KV pool that options would make.
 * @property {string} dtype
 * @property {number} bytes_per_token
 * @property {number} num_bytes
 * @property {number} num_blocks
 * @property {number} block_size
 * @property {number} context_length  Tokens that one sequence may then have.
 *
 * @typedef {{name: string, operator: string, url: string}} VectorFile  A conformance case and where its file is.
 *
 * @typedef {object} CheckParams
 * @property {VectorFile[]} files
 * @property {string | null} tier
 * @property {'gpu' | 'software' | null} prefer
 * @property {boolean} baseline  With the least that any adapter offers.
 *
 * @typedef {LoadProgress | {adapter: AdapterInfo} | {report: CaseReport}} CheckEvent
 *
 * @typedef {object} CaseReport  `pageloom.conformance.report.CaseReport`; a number that is infinite is null.
 * @property {string} name
 * @property {string} operator
 * @property {string} feature
 * @property {'passed' | 'failed' | 'skipped'} outcome
 * @property {string} tier  What computed it.
 * @property {Record<string, string>} faster  For each faster tier why it did not.
 * @property {number | null} worst_error
 * @property {number | null} budget  Of the element that uses most of its budget.
 * @property {number | null} share  Error over budget.
 * @property {string} where  That element.
 * @property {'' | 'same bits' | 'within budget' | 'off'} alone  Each sequence by itself, against the batch.
 * @property {string} detail  Why it failed or was skipped.
 * @property {number} seconds
 *
 * @typedef {{prefer: 'gpu' | 'software' | null, shapes: string}} BenchParams  Words of the names of those wanted.
 * @typedef {LoadProgress | {described: BenchDescribed} | {rows: BenchRow[]}} BenchEvent
 *
 * @typedef {object} BenchDescribed
 * @property {AdapterInfo} adapter
 * @property {{read: number, compute: number}} rates  Bytes and operations a second that the adapter reached.
 * @property {'gpu' | 'host'} clock
 * @property {string[]} shapes
 *
 * @typedef {object} BenchRow  A shape on a tier, as `pageloom bench --json` has it. Times in seconds, of one call.
 * @property {string} shape
 * @property {string} tier
 * @property {number[]} seconds  One a repeat.
 * @property {number[]} attention_seconds  Of the programs that attend alone.
 * @property {string} reason  Why it was not run.
 * @property {number} limit  What the bytes or the sums take at the adapter's rates.
 */

/** The worker's first message: it holds the lock of its own name, until it ends. */
export const HOLDS_LOCK = 'holds lock';
