package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// call is what a client is to do.
type call struct {
	Op     string         `json:"op"` // models, chat, completion, chat stream, completion stream
	ID     string         `json:"id"` // X-Request-Id
	Model  string         `json:"model"`
	Params map[string]any `json:"params"`
	Cancel string         `json:"cancel,omitempty"` // "early": 300 ms after the request; "mid-stream": after the third chunk
}

// seen is what its user sees.
type seen struct {
	Answer string   `json:"answer"` // its id
	Text   string   `json:"text"`
	Chunks int      `json:"chunks"`
	Finish string   `json:"finish"`
	Role   string   `json:"role"`
	Tokens int      `json:"tokens"`
	Prompt int      `json:"prompt"`
	Models []string `json:"models"`
	One    string   `json:"one"`
	Error  *failure `json:"error"`
}

// failure is an error of the client, taken apart.
type failure struct {
	Kind    string `json:"kind"` // its class or type
	Status  int    `json:"status"`
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// client is an official client of the OpenAI API.
type client interface {
	do(t *testing.T, c call) seen
}

// goClient is openai-go.
type goClient struct{ openai.Client }

func newGoClient(t *testing.T, url string) goClient {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return goClient{openai.NewClient(option.WithBaseURL(url+"/v1/"), option.WithAPIKey("none"),
		option.WithMaxRetries(0),
		option.WithRequestTimeout(time.Minute), option.WithHTTPClient(&http.Client{Transport: tr}))}
}

func (g goClient) do(t *testing.T, c call) (s seen) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if c.Cancel == "early" {
		defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
	}
	opts := []option.RequestOption{option.WithHeader("X-Request-Id", c.ID)}
	for k, v := range c.Params {
		opts = append(opts, option.WithJSONSet(k, v))
	}
	chat := openai.ChatCompletionNewParams{Model: c.Model, User: openai.String("someone"),
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("be brief"),
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.TextContentPart("one two")})}}
	plain := openai.CompletionNewParams{Model: openai.CompletionNewParamsModel(c.Model), User: openai.String("someone"),
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("one two")}}
	usage := openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	more := func(text, finish string) bool {
		if text != "" {
			s.Text += text
			s.Chunks++
		}
		if finish != "" {
			s.Finish = finish
		}
		return !(c.Cancel == "mid-stream" && s.Chunks == 3)
	}
	var err error
	switch c.Op {
	case "models":
		pager := g.Models.ListAutoPaging(ctx)
		for pager.Next() {
			s.Models = append(s.Models, pager.Current().ID)
		}
		if err = pager.Err(); err == nil && len(s.Models) > 0 {
			var m *openai.Model
			if m, err = g.Models.Get(ctx, s.Models[0]); err == nil {
				s.One = m.ID
			}
		}
	case "chat":
		var r *openai.ChatCompletion
		if r, err = g.Chat.Completions.New(ctx, chat, opts...); err == nil {
			s.Answer = r.ID
			s.Text, s.Finish, s.Role = r.Choices[0].Message.Content, r.Choices[0].FinishReason,
				string(r.Choices[0].Message.Role)
			s.Tokens, s.Prompt = int(r.Usage.CompletionTokens), int(r.Usage.PromptTokens)
		}
	case "completion":
		var r *openai.Completion
		if r, err = g.Completions.New(ctx, plain, opts...); err == nil {
			s.Answer = r.ID
			s.Text, s.Finish = r.Choices[0].Text, string(r.Choices[0].FinishReason)
			s.Tokens, s.Prompt = int(r.Usage.CompletionTokens), int(r.Usage.PromptTokens)
		}
	case "chat stream":
		chat.StreamOptions = usage
		stream := g.Chat.Completions.NewStreaming(ctx, chat, opts...)
		defer stream.Close()
		for stream.Next() {
			k := stream.Current()
			s.Answer = k.ID
			if k.JSON.Usage.Valid() {
				s.Tokens, s.Prompt = int(k.Usage.CompletionTokens), int(k.Usage.PromptTokens)
			}
			for _, choice := range k.Choices {
				if choice.Delta.Role != "" {
					s.Role = choice.Delta.Role
				}
				if !more(choice.Delta.Content, choice.FinishReason) {
					return s
				}
			}
		}
		err = stream.Err()
	case "completion stream":
		plain.StreamOptions = usage
		stream := g.Completions.NewStreaming(ctx, plain, opts...)
		defer stream.Close()
		for stream.Next() {
			k := stream.Current()
			s.Answer = k.ID
			if k.JSON.Usage.Valid() {
				s.Tokens, s.Prompt = int(k.Usage.CompletionTokens), int(k.Usage.PromptTokens)
			}
			for _, choice := range k.Choices {
				if !more(choice.Text, string(choice.FinishReason)) {
					return s
				}
			}
		}
		err = stream.Err()
	default:
		t.Fatalf("no such op: %s", c.Op)
	}
	s.Error = failureOf(t, err)
	return s
}

func failureOf(t *testing.T, err error) *failure {
	var api *openai.Error
	var stream *ssestream.StreamError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &api):
		return &failure{Kind: "Error", Status: api.StatusCode, Type: api.Type, Code: api.Code, Message: api.Message}
	case errors.As(err, &stream):
		var e struct{ Error failure }
		if err := json.Unmarshal(stream.Event.Data, &e); err != nil {
			t.Errorf("the event of a stream's error: %v: %s", err, stream.Event.Data)
		}
		e.Error.Kind = "StreamError"
		return &e.Error
	}
	return &failure{Kind: "other", Message: err.Error()}
}
