package mock

import "github.com/laneway-ai/laneway/internal/program/tracing"

// Writer is what an engine needs of a response.
type Writer = tracing.Writer
