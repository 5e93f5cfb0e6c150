"""The few calls of libmoe.so that tests written in Python need, by ctypes: configuration, engine, model.

Not the Python binding: a thin door for tests. MOE_LIBRARY names the library.
"""
import ctypes as C
import json
import os

import numpy as np

DTYPES = {1: np.float32, 2: np.float64, 3: np.int32, 4: np.int64, 5: np.uint8}


class EngineOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("extension", C.c_void_p), ("rank", C.c_int64), ("world_size", C.c_int64),
                ("inproc", C.c_void_p), ("host", C.c_char_p), ("port", C.c_int64), ("job_id", C.c_char_p),
                ("local_world_size", C.c_int64), ("log", C.c_void_p), ("log_user_data", C.c_void_p)]


class Batch(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("extension", C.c_void_p), ("ids", C.c_void_p), ("labels", C.c_void_p),
                ("batch", C.c_int64), ("seq", C.c_int64), ("first_sample", C.c_int64)]


class StepStats(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("extension", C.c_void_p), ("step", C.c_int64), ("loss", C.c_double),
                ("aux_loss", C.c_double), ("z_loss", C.c_double), ("total_loss", C.c_double), ("grad_norm", C.c_double),
                ("lr", C.c_double), ("tokens", C.c_int64), ("dropped_routes", C.c_int64)]


class Parameter(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("extension", C.c_void_p), ("name", C.c_char_p), ("is_expert", C.c_int32),
                ("dtype", C.c_int32), ("ndim", C.c_int32), ("decay", C.c_int32), ("shape", C.c_int64 * 4),
                ("global_shape", C.c_int64 * 4), ("begin", C.c_int64 * 4), ("value", C.c_void_p), ("grad", C.c_void_p)]


def sized(struct):
    s = struct()
    s.struct_size = C.sizeof(struct)
    return s


class Library:
    def __init__(self, path=None):
        self.lib = C.CDLL(path or os.environ["MOE_LIBRARY"])
        self.lib.moe_status_message.restype = C.c_char_p
        for name in ("moe_config_create", "moe_config_parse", "moe_config_set", "moe_engine_create", "moe_engine_shutdown",
                     "moe_model_create", "moe_model_forward_backward", "moe_model_optimizer_step", "moe_model_train_step",
                     "moe_model_parameter", "moe_model_logits", "moe_model_evaluate", "moe_model_load", "moe_model_save",
                     "moe_inproc_create"):
            getattr(self.lib, name).restype = C.c_void_p
        self.lib.moe_model_num_parameters.restype = C.c_int64
        for name in ("moe_status_message", "moe_status_destroy", "moe_engine_destroy", "moe_model_destroy", "moe_config_destroy",
                     "moe_model_num_parameters", "moe_inproc_destroy"):
            getattr(self.lib, name).argtypes = [C.c_void_p]
        self.lib.moe_model_parameter.argtypes = [C.c_void_p, C.c_int64, C.c_void_p]

    def check(self, status):
        if status:
            text = self.lib.moe_status_message(status).decode()
            self.lib.moe_status_destroy(status)
            raise RuntimeError(text)


class Model:
    """A model on one rank. `fields` are configuration paths with values."""

    def __init__(self, library, fields, rank=0, world=1, inproc=None):
        self.lib, L = library, library.lib
        self.config, self.engine, self.model = C.c_void_p(), C.c_void_p(), C.c_void_p()
        library.check(L.moe_config_create(C.byref(self.config)))
        for path, value in fields.items():
            library.check(L.moe_config_set(self.config, path.encode(), str(value).encode()))
        options = sized(EngineOptions)
        options.rank, options.world_size, options.inproc = rank, world, inproc
        library.check(L.moe_engine_create(self.config, C.byref(options), C.byref(self.engine)))
        library.check(L.moe_model_create(self.engine, C.byref(self.model)))

    def parameters(self):
        """name -> (value, gradient) as numpy views."""
        out = {}
        for i in range(self.lib.lib.moe_model_num_parameters(self.model)):
            p = sized(Parameter)
            self.lib.check(self.lib.lib.moe_model_parameter(self.model, i, C.byref(p)))
            shape, dtype = tuple(p.shape[:p.ndim]), DTYPES[p.dtype]
            n = int(np.prod(shape)) * np.dtype(dtype).itemsize
            view = lambda at: np.frombuffer((C.c_char * n).from_address(at), dtype).reshape(shape)
            out[p.name.decode()] = (view(p.value), view(p.grad))
        return out

    def _batch(self, ids, labels):
        b = sized(Batch)
        b.ids, b.labels = ids.ctypes.data, labels.ctypes.data if labels is not None else None
        b.batch, b.seq = ids.shape
        return b

    def step(self, ids, labels, update=True):
        """One training step; with update False only forward and backward. int32 [batch, seq] arrays."""
        s, b, L = sized(StepStats), self._batch(ids, labels), self.lib.lib
        self.lib.check(L.moe_model_forward_backward(self.model, C.byref(b), C.byref(s)))
        if update:
            self.update(s)
        return s

    def update(self, stats):
        """The optimizer's part of a step."""
        self.lib.check(self.lib.lib.moe_model_optimizer_step(self.model, C.byref(stats)))

    def logits(self, ids, vocab, dtype=np.float32):
        out = np.empty(ids.shape + (vocab,), dtype)
        b = self._batch(ids, None)
        self.lib.check(self.lib.lib.moe_model_logits(self.model, C.byref(b), C.c_void_p(out.ctypes.data)))
        return out

    def close(self):
        L = self.lib.lib
        self.lib.check(L.moe_engine_shutdown(self.engine))
        L.moe_model_destroy(self.model)
        L.moe_engine_destroy(self.engine)
        L.moe_config_destroy(self.config)
