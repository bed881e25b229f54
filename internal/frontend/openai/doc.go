// Package openai has what the frontend speaks to its clients: requests of the OpenAI API (chat completions and
// completions), replies, streamed chunks and the error object. Requests are read with encoding/json, once a request.
// Chunks are appended by hand: a chunk is a prefix made once a response, the escaped text, and a suffix, so that a
// token costs no allocation and no reflection.
package openai
