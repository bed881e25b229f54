package openai

import "strconv"

// AppendReplyStart appends a whole (not streamed) reply up to its text. The text follows, escaped, then AppendReplyEnd.
func AppendReplyStart(dst []byte, h Header) []byte {
	if h.Kind == Chat {
		dst = h.append(dst, "chat.completion")
		return append(dst, `"choices":[{"index":0,"message":{"role":"assistant","content":"`...)
	}
	dst = h.append(dst, "text_completion")
	return append(dst, `"choices":[{"index":0,"text":"`...)
}

// AppendReplyEnd appends the rest of a whole reply.
func AppendReplyEnd(dst []byte, k Kind, finishReason string, u Usage) []byte {
	if k == Chat {
		dst = append(dst, `","refusal":null},"logprobs":null,"finish_reason":"`...)
	} else {
		dst = append(dst, `","logprobs":null,"finish_reason":"`...)
	}
	dst = AppendEscaped(dst, finishReason)
	dst = append(dst, `"}],"usage":`...)
	dst = u.append(dst)
	return append(dst, '}')
}

// AppendModel appends one model object.
func AppendModel(dst []byte, id string, created int64) []byte {
	dst = append(dst, `{"id":"`...)
	dst = AppendEscaped(dst, id)
	dst = append(dst, `","object":"model","created":`...)
	dst = strconv.AppendInt(dst, created, 10)
	return append(dst, `,"owned_by":"laneway"}`...)
}

// AppendModelList appends the list of models.
func AppendModelList(dst []byte, ids []string, created int64) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendModel(dst, id, created)
	}
	return append(dst, "]}"...)
}
