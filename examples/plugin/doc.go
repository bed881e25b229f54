// Command plugin shows how an inference platform that has its own HTTP server, its own router and its own request path
// plugs Laneway in: requests go to workers over plain HTTP, tokens come back over lanes. It uses responseplane and two
// transports and nothing else: no etcd, no NATS.
//
//	go run ./examples/plugin worker --http 127.0.0.1:9001
//	go run ./examples/plugin worker --http 127.0.0.1:9002
//	go run ./examples/plugin frontend --http 127.0.0.1:8080 \
//		--worker http://127.0.0.1:9001 --worker http://127.0.0.1:9002
//	curl -N -d '{"prompt":"one two three"}' 127.0.0.1:8080/generate
//
// With --open the frontend sends a request away before it knows which worker will run it, as one whose router is
// another process does; the worker that gets the request claims the response.
//
// docs/plug-in.md walks through the files: api.go is what travels, worker.go and frontend.go are the two sides.
package main
