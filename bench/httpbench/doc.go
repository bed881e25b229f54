// Package httpbench measures response planes under one HTTP frontend, end to end: it is what `bench http` does.
//
// The frontend is internal/frontend as cmd/frontend serves it; what is behind its Backend interface is the arm. Worker
// processes host mock engines, one client process (internal/lab/loadgen) holds the open responses, verifies every token
// and counts it. All are processes of their own, so that CPU is attributable; the arm in-process has its engines in the
// frontend's process and no worker process. Beside it runs a process with the same engines under the same load whose
// tokens go nowhere: what that uses is taken off the frontend's CPU where the arm stands for the out path alone.
//
// # Load
//
// A closed loop of open responses. The first responses have lengths spread over 1..osl, so that starts and ends are
// spread over a response's life from the beginning, and a window that is shorter than a life sees the mix of a long
// run. The window begins when all responses are open and the warm-up has passed. At the end the client starts no more,
// and the engines end each response at their next pass: so every response ends whole, and the counts of the workers,
// the frontend and the client must be equal.
//
// # What is measured
//
// CPU is getrusage of each process over the window. Requests in the window = tokens that the frontend took in it / osl:
// a request's share of everything, whether it began or ended in the window or not. TTFT is of the requests that were
// sent in the window, ITL of those that ended in it, as the client saw them. RSS per open response is what the
// frontend's resident set has grown by from just before the load to the window's end.
package httpbench
