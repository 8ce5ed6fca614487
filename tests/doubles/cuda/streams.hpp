// Part of fakecuda.cpp: streams, events, captures, graphs.

CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int) {
  ENTER_CONTEXT(cuStreamCreateWithPriority);
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  *out = reinterpret_cast<CUstream>(new_stream(context, !(flags & CU_STREAM_NON_BLOCKING)));
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream handle) {
  ENTER(cuStreamDestroy);
  LOCKED();
  Stream* s = resolve(handle);
  if (!s) return CUDA_ERROR_INVALID_HANDLE;
  s->destroyed = true;  // what is queued still runs
  return CUDA_SUCCESS;
}
CUresult cuStreamGetId(CUstream handle, unsigned long long* out) {
  ENTER(cuStreamGetId);
  NEED_CONTEXT();
  (void)context;
  LOCKED();
  Stream* s = resolve(handle);
  if (!s) return CUDA_ERROR_INVALID_HANDLE;
  if (is_captured(s)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  *out = s->id;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream handle, CUcontext* out) {
  ENTER(cuStreamGetCtx);
  LOCKED();
  Stream* s = resolve(handle);
  if (!s) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUcontext>(s->context);
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream handle) {
  ENTER_STREAM(cuStreamSynchronize, s, handle);
  if (is_captured(s)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  wait_for(lock, s);
  if (s == s->context->legacy)
    for (size_t i = 0; i < context->streams.size(); ++i)
      if (context->streams[i]->blocking) wait_for(lock, context->streams[i]);
  return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream handle) {
  ENTER_STREAM(cuStreamQuery, s, handle);
  if (is_captured(s)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (s == context->legacy)
    for (Stream* other : context->streams)
      if (other->blocking && other->done < other->queued) return CUDA_ERROR_NOT_READY;
  return s->done < s->queued ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream handle, CUevent e, unsigned flags) {
  ENTER_STREAM(cuStreamWaitEvent, s, handle);
  auto* event = reinterpret_cast<Event*>(e);
  if (event->capture && !event->capture->invalid) {
    if (s->capture && s->capture != event->capture) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (s == s->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    s->capture = event->capture;  // the fork: this stream is captured too from here on
    return CUDA_SUCCESS;
  }
  if (s->capture && !(flags & CU_EVENT_WAIT_EXTERNAL)) {
    s->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (!event->stream) return CUDA_SUCCESS;
  if (s->capture) {
    enqueue(s, [event] {
      LOCKED();
      machine().moved.wait(lock, [&] { return event->stream->done >= event->count; });
    });
  } else {
    enqueue(s, nullptr, {{event->stream, event->count}});
  }
  return CUDA_SUCCESS;
}
CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  ENTER_STREAM(cuLaunchHostFunc, s, handle);
  enqueue(s, [=] { function(data); });
  return CUDA_SUCCESS;
}

// ---- events -----------------------------------------------------------------------------------
CUresult cuEventCreate(CUevent* out, unsigned flags) {
  ENTER_CONTEXT(cuEventCreate);
  auto* event = new Event{context, flags};
  machine().events.insert(event);
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent e) {
  ENTER(cuEventDestroy);
  LOCKED();
  if (!machine().events.erase(reinterpret_cast<Event*>(e))) {
    machine().fault("cuEventDestroy of an unknown event");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;  // the object stays: waits may refer to it
}
CUresult cuEventRecord(CUevent e, CUstream handle) {
  ENTER_CONTEXT(cuEventRecord);
  auto* event = reinterpret_cast<Event*>(e);
  if (!machine().events.count(event)) {
    machine().fault("cuEventRecord of an unknown event");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  STREAM(s, handle);
  if (event->context != s->context) {
    machine().fault("an event was recorded on a stream of another context");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  event->capture = s->capture;
  if (s->capture) return CUDA_SUCCESS;
  event->time = std::make_shared<Clock::time_point>();
  enqueue(s, [time = event->time] { *time = Clock::now(); });
  event->stream = s;
  event->count = s->queued;
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent e) {
  ENTER(cuEventQuery);
  LOCKED();
  auto* event = reinterpret_cast<Event*>(e);
  if (!machine().events.count(event)) {
    machine().fault("cuEventQuery of an unknown event");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return event->stream && event->stream->done < event->count ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent e) {
  ENTER(cuEventSynchronize);
  LOCKED();
  auto* event = reinterpret_cast<Event*>(e);
  if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!event->stream) return CUDA_SUCCESS;
  Stream* s = event->stream;
  uint64_t count = event->count;
  machine().moved.wait(lock, [&] { return s->done >= count; });
  return CUDA_SUCCESS;
}
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* out, CUevent a, CUevent b) {
  ENTER(cuEventElapsedTime);
  LOCKED();
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto *start = reinterpret_cast<Event*>(a), *end = reinterpret_cast<Event*>(b);
  if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
  for (Event* event : {start, end}) {
    if (!event->stream) return CUDA_ERROR_INVALID_HANDLE;
    if (event->stream->done < event->count) return CUDA_ERROR_NOT_READY;
  }
  *out = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
  return CUDA_SUCCESS;
}

// ---- captures and graphs ----------------------------------------------------------------------
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  ENTER(cuThreadExchangeStreamCaptureMode);
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* out) {
  ENTER(cuStreamIsCapturing);
  LOCKED();
  if (!current() && (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)) {
    machine().fault("cuStreamIsCapturing of a default stream without a context");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  Stream* s = resolve(handle);
  if (!s) return CUDA_ERROR_INVALID_HANDLE;
  if (implicit(s, true)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *out = !s->capture            ? CU_STREAM_CAPTURE_STATUS_NONE
         : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* out, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** nodes, size_t* n) {
  CUresult code = cuStreamIsCapturing(handle, out);
  if (code != CUDA_SUCCESS) return code;
  LOCKED();
  Stream* s = resolve(handle);
  if (s->capture && id) *id = s->capture->id;
  if (s->capture && graph) *graph = reinterpret_cast<CUgraph>(s->capture->graph);
  if (nodes) *nodes = nullptr;
  if (n) *n = 0;
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  ENTER_CONTEXT(cuStreamBeginCapture);
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  STREAM(s, handle);
  if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
  Machine& m = machine();
  s->capture = std::make_shared<Capture>(Capture{m.next_capture++, new Graph, mode, std::this_thread::get_id(), s});
  m.captures.push_back(s->capture);
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream handle, CUgraph* out) {
  ENTER(cuStreamEndCapture);
  Graph* spoilt = nullptr;
  {
    LOCKED();
    Stream* s = resolve(handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    auto capture = s->capture;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != s) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->thread != std::this_thread::get_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    Machine& m = machine();
    for (Stream* other : m.streams)
      if (other->capture == capture) other->capture = nullptr;
    std::erase(m.captures, capture);
    *out = capture->invalid ? nullptr : reinterpret_cast<CUgraph>(capture->graph);
    if (capture->invalid) spoilt = capture->graph;
  }
  delete spoilt;  // outside the lock: may call a user object's destructor
  return spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph g) {
  ENTER(cuGraphDestroy);
  if (is_lost(reinterpret_cast<Graph*>(g))) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  delete reinterpret_cast<Graph*>(g);
  return CUDA_SUCCESS;
}
CUresult cuGraphGetNodes(CUgraph g, CUgraphNode*, size_t* n) {
  ENTER(cuGraphGetNodes);
  if (is_lost(reinterpret_cast<Graph*>(g))) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *n = reinterpret_cast<Graph*>(g)->body->works.size();
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph g, unsigned long long) {
  ENTER(cuGraphInstantiateWithFlags);
  LOCKED();
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  *out = reinterpret_cast<CUgraphExec>(new GraphExec{reinterpret_cast<Graph*>(g)->body});
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec e, CUstream handle) {
  ENTER_STREAM(cuGraphLaunch, s, handle);
  if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  enqueue(s, [body = reinterpret_cast<GraphExec*>(e)->body] {
    for (const Work& work : body->works)
      if (work) work();
  });
  return CUDA_SUCCESS;
}
// One node with a copy of another graph, which has references to the user objects of the other. Nodes run in
// the order in which they were added, so that dependencies need no telling.
CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph outer, const CUgraphNode*, size_t, CUgraph inner) {
  ENTER(cuGraphAddChildGraphNode);
  LOCKED();
  std::shared_ptr<GraphBody> body = reinterpret_cast<Graph*>(inner)->body;
  reinterpret_cast<Graph*>(outer)->body->works.push_back([body, works = body->works] {
    for (const Work& work : works)
      if (work) work();
  });
  *node = reinterpret_cast<CUgraphNode>(outer);
  return CUDA_SUCCESS;
}
// The older one, without edges; the header gives its name to the newer.
#undef cuStreamUpdateCaptureDependencies
CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode*, size_t, unsigned) {
  ENTER_STREAM(cuStreamUpdateCaptureDependencies, s, handle);
  return s->capture ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}
CUresult cuGraphExecDestroy(CUgraphExec e) {
  ENTER(cuGraphExecDestroy);
  if (is_lost(reinterpret_cast<GraphExec*>(e))) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  delete reinterpret_cast<GraphExec*>(e);
  return CUDA_SUCCESS;
}
CUresult cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy, unsigned, unsigned) {
  ENTER(cuUserObjectCreate);
  *out = reinterpret_cast<CUuserObject>(new UserObject{destroy, data});
  return CUDA_SUCCESS;
}
CUresult cuUserObjectRelease(CUuserObject o, unsigned) {
  ENTER(cuUserObjectRelease);
  auto* object = reinterpret_cast<UserObject*>(o);
  object->destroy(object->data);
  delete object;
  return CUDA_SUCCESS;
}
// The fake driver has no copy engine.
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  ENTER(cuTensorMapEncodeTiled);
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphRetainUserObject(CUgraph g, CUuserObject o, unsigned, unsigned flags) {
  ENTER(cuGraphRetainUserObject);
  if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) return CUDA_ERROR_NOT_SUPPORTED;
  LOCKED();
  auto* object = reinterpret_cast<UserObject*>(o);
  reinterpret_cast<Graph*>(g)->body->user_objects.push_back({object->destroy, object->data});
  delete object;
  return CUDA_SUCCESS;
}
