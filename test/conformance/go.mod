module github.com/laneway-ai/laneway/test/conformance

go 1.26.0

require github.com/laneway-ai/laneway v0.0.0

replace github.com/laneway-ai/laneway => ../..
