// Package nats is a discovery.Deliverer on NATS request and reply.
//
// # Who listens where
//
// A process is one NATS micro service, named laneway-<namespace>, and each of its workers is an endpoint of it, on the
// subject laneway.<namespace>.worker.<worker id>. The ordinary tool shows them: nats micro ls, nats micro info, nats
// micro stats. The service answers the micro protocol itself (with the types of nats.go/micro) because that package can
// neither take a single endpoint out of a service nor wait until its queue is empty, and a service for each worker
// would cost ten subscriptions and goroutines each.
//
// # What a request looks like
//
// The payload is the message's body, untouched. All else is in headers: Laneway-Version (1), Laneway-Id, Laneway-Terms
// (base64, no padding), and Laneway-Carry-<key> for what Request.Header holds. Id, keys and values are escaped as in a
// URL's query, so that any text survives. The reply has no body: Laneway-Answer is "accepted", "busy", "draining",
// "unsupported" or "bad-request", and Laneway-Reason says why (escaped in the same way).
//
// # What is bounded
//
// Requests are published without a reconnect buffer: they go now or fail now. A request that is on its way when the
// connection breaks fails with ErrUnavailable: whether the worker got it is not known, and its terms must not be used
// again. Each worker has a queue of Config.Queue requests before its handler; the next one is answered with Busy at
// once.
package nats
