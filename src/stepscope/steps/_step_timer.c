/* Times whole training steps and their waits for data, at a cost of about two microseconds per step. After a
 * step the CPU caches hold the training's data, and each call of a Python function then takes several
 * microseconds.
 *
 * step_timer.py documents the behaviour and every field, and does the same in Python if this could not be
 * compiled. Only the stable ABI is used: one build works with all versions of Python.
 */

#define Py_LIMITED_API 0x030a0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stddef.h>
#include <structmember.h>
#include <time.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Rows are handed over as they lie in memory, and the journal has them in little-endian order"
#endif

#define MAX_ROWS 1024
#define COLUMNS 5
#define TAKEOVER 8

typedef struct {
    long long ended_ns, number, took_ns, waited_ns, batches;
} Row;

typedef struct {
    PyObject_HEAD
    long long step, began_ns, waited_ns, batches, steps_made, left, due_ns, most_batches, first_step, stride;
    long long last_logged;
    char is_made, is_over, in_batches, every_batch, is_special;
    int others;
    PyObject *last_reference, *held; /* the first one is a weak reference to the last optimizer */
    PyObject *on_step, *on_due, *on_batch, *on_optimizer, *on_other, *on_asked, *on_got;
    int rows;
    Row row[MAX_ROWS];
} StepTimer;

static long long
now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Calls a callback, unless it is None; returns -1 if it raised. */
static int
call(PyObject *callback, PyObject *argument)
{
    PyObject *result;
    if (callback == NULL || callback == Py_None)
        return 0;
    Py_INCREF(callback);
    result = PyObject_CallFunctionObjArgs(callback, argument, NULL);
    Py_DECREF(callback);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int
is_set(PyObject *callback)
{
    return callback != NULL && callback != Py_None;
}

static int
end_step(StepTimer *self, long long ended_ns)
{
    self->left--;
    if (self->rows == MAX_ROWS && call(self->on_due, NULL) < 0)
        return -1;
    if (self->rows == MAX_ROWS)
        self->rows = 0; /* nothing takes them */
    if (self->is_special || self->left <= 0) {
        PyObject *at = PyLong_FromLongLong(ended_ns);
        int failed = at == NULL || call(self->on_step, at) < 0;
        Py_XDECREF(at);
        if (failed)
            return -1;
    }
    else {
        Row *row = &self->row[self->rows++];
        row->ended_ns = ended_ns;
        row->number = self->step;
        row->took_ns = ended_ns - self->began_ns;
        row->waited_ns = self->waited_ns;
        row->batches = self->batches;
        if (self->batches > self->most_batches)
            self->most_batches = self->batches;
    }
    self->began_ns = ended_ns;
    self->waited_ns = self->batches = 0;
    self->is_made = 0;
    return ended_ns >= self->due_ns ? call(self->on_due, NULL) : 0;
}

/* Ends a step that no batch ends. Values logged after it still belong to it. */
static int
end_by_optimizer(StepTimer *self)
{
    if (self->stride) {
        self->stride = 0; /* calls of log no longer count steps */
        self->step -= self->step > self->first_step;
    }
    self->step += self->is_over;
    self->is_over = 0;
    if (end_step(self, now_ns()) < 0)
        return -1;
    self->is_over = 1;
    return 0;
}

static int
make_step(StepTimer *self)
{
    self->steps_made++;
    self->is_made = 1;
    return self->in_batches ? 0 : end_by_optimizer(self);
}

static int
end_batch(StepTimer *self, long long ended_ns)
{
    int ends = self->is_made || self->every_batch;
    self->batches++;
    if (!ends && is_set(self->on_batch)) {
        PyObject *result = PyObject_CallFunctionObjArgs(self->on_batch, NULL);
        ends = result == NULL ? -1 : PyObject_IsTrue(result);
        Py_XDECREF(result);
        if (ends < 0)
            return -1;
    }
    if (!ends)
        return ended_ns >= self->due_ns ? call(self->on_due, NULL) : 0;
    if (end_step(self, ended_ns) < 0)
        return -1;
    self->step++;
    return 0;
}

/* The last optimizer as a new reference; None if there is none, or if it no longer exists. */
static PyObject *
timer_get_last_optimizer(StepTimer *self, void *closure)
{
    if (self->last_reference == NULL)
        Py_RETURN_NONE;
    return PyObject_CallFunctionObjArgs(self->last_reference, NULL);
}

static int
timer_set_last_optimizer(StepTimer *self, PyObject *optimizer, void *closure)
{
    PyObject *before = self->last_reference, *reference = NULL;
    if (optimizer != NULL && optimizer != Py_None && (reference = PyWeakref_NewRef(optimizer, NULL)) == NULL)
        return -1;
    self->last_reference = reference;
    Py_XDECREF(before);
    return 0;
}

/* Whether an optimizer is the last one; -1 if that raised. */
static int
is_last(StepTimer *self, PyObject *optimizer)
{
    PyObject *last = timer_get_last_optimizer(self, NULL);
    Py_XDECREF(last);
    return last == NULL ? -1 : last == optimizer;
}

/* The result of `on_other` for an optimizer; -1 if it raised. */
static int
kind_of_other(StepTimer *self, PyObject *optimizer)
{
    PyObject *result;
    long kind;
    if (!is_set(self->on_other))
        return 0;
    result = PyObject_CallFunctionObjArgs(self->on_other, optimizer, NULL);
    kind = result == NULL ? -1 : PyLong_AsLong(result);
    Py_XDECREF(result);
    return (int)kind;
}

/* Whether a step of this optimizer ends a training step; -1 if a callback raised. */
static int
ends_step(StepTimer *self, PyObject *optimizer)
{
    int last = is_last(self, optimizer);
    if (last < 0)
        return -1;
    if (!last) {
        int kind = kind_of_other(self, optimizer);
        if (kind <= 0)
            return kind;
        if (++self->others < TAKEOVER && kind != 1)
            return self->in_batches;
        if (timer_set_last_optimizer(self, optimizer, NULL) < 0)
            return -1;
    }
    self->others = 0;
    return 1;
}

static PyObject *
timer_optimizer_stepped(StepTimer *self, PyObject *const *arguments, Py_ssize_t count)
{
    int failed = 0, ends;
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "optimizer_stepped() takes the optimizer that has stepped");
        return NULL;
    }
    if (is_set(self->on_optimizer))
        failed = call(self->on_optimizer, arguments[0]);
    else if ((ends = ends_step(self, arguments[0])) != 0)
        failed = ends < 0 ? -1 : make_step(self);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
timer_ends_step(StepTimer *self, PyObject *optimizer)
{
    int ends = ends_step(self, optimizer);
    return ends < 0 ? NULL : PyBool_FromLong(ends);
}

static PyObject *
timer_make_step(StepTimer *self, PyObject *unused)
{
    if (make_step(self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Ends a step at its log call, if nothing else ends it; the call has already increased the number. */
static PyObject *
timer_end_logged(StepTimer *self, PyObject *unused)
{
    if (self->step - 1 == self->last_logged)
        Py_RETURN_NONE;
    self->last_logged = --self->step;
    if (end_step(self, now_ns()) < 0)
        return NULL;
    self->step++;
    Py_RETURN_NONE;
}

static PyObject *
timer_end_batch(StepTimer *self, PyObject *unused)
{
    if (end_batch(self, now_ns()) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
timer_take(StepTimer *self, PyObject *columns)
{
    long wanted = PyLong_AsLong(columns);
    PyObject *rows;
    char *at;
    if (wanted < 3 || wanted > COLUMNS) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "take() gives 3, 4 or 5 columns");
        return NULL;
    }
    rows = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)self->rows * wanted * 8);
    if (rows == NULL)
        return NULL;
    at = PyBytes_AsString(rows);
    for (int i = 0; i < self->rows; i++) {
        const Row *row = &self->row[i];
        double values[] = {(double)row->took_ns * 1e-9, (double)row->waited_ns * 1e-9, (double)row->batches};
        memcpy(at, &row->ended_ns, 8);
        memcpy(at + 8, &row->number, 8);
        memcpy(at + 16, values, (size_t)(wanted - 2) * 8);
        at += wanted * 8;
    }
    self->rows = 0;
    self->most_batches = 0;
    return rows;
}

static PyObject *
timer_get_step(StepTimer *self, void *unused)
{
    return PyLong_FromLongLong(self->step);
}

/* A number that is too large becomes the largest possible one: counting continues without an exception. */
static int
timer_set_step(StepTimer *self, PyObject *value, void *unused)
{
    int overflow;
    long long step;
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "step cannot be deleted");
        return -1;
    }
    step = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (step == -1 && PyErr_Occurred())
        return -1;
    self->step = overflow > 0 ? LLONG_MAX : overflow < 0 ? LLONG_MIN : step;
    return 0;
}

static int
timer_traverse(StepTimer *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->last_reference);
    Py_VISIT(self->held);
    Py_VISIT(self->on_step);
    Py_VISIT(self->on_due);
    Py_VISIT(self->on_batch);
    Py_VISIT(self->on_optimizer);
    Py_VISIT(self->on_other);
    Py_VISIT(self->on_asked);
    Py_VISIT(self->on_got);
    return 0;
}

static int
timer_clear(StepTimer *self)
{
    Py_CLEAR(self->last_reference);
    Py_CLEAR(self->held);
    Py_CLEAR(self->on_step);
    Py_CLEAR(self->on_due);
    Py_CLEAR(self->on_batch);
    Py_CLEAR(self->on_optimizer);
    Py_CLEAR(self->on_other);
    Py_CLEAR(self->on_asked);
    Py_CLEAR(self->on_got);
    return 0;
}

static void
timer_dealloc(StepTimer *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    timer_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int
timer_init(StepTimer *self, PyObject *arguments, PyObject *options)
{
    self->began_ns = now_ns();
    self->left = LLONG_MAX;
    self->due_ns = LLONG_MAX;
    self->stride = 1;
    self->last_logged = LLONG_MIN;
    return 0;
}

/* The batches of one pass over a loader. */

typedef struct {
    PyObject_HEAD
    StepTimer *timer;
    PyObject *source, *finish;
    char is_given;
} Batches;

static PyTypeObject *batches_type;

static PyObject *
timer_batches_of(StepTimer *self, PyObject *arguments)
{
    PyObject *source, *finish;
    Batches *batches;
    if (!PyArg_ParseTuple(arguments, "OO", &source, &finish))
        return NULL;
    if (!PyIter_Check(source)) {
        PyErr_SetString(PyExc_TypeError, "batches_of() takes an iterator");
        return NULL;
    }
    batches = (Batches *)((allocfunc)PyType_GetSlot(batches_type, Py_tp_alloc))(batches_type, 0);
    if (batches == NULL)
        return NULL;
    Py_INCREF(self);
    Py_INCREF(source);
    Py_INCREF(finish);
    batches->timer = self;
    batches->source = source;
    batches->finish = finish;
    return (PyObject *)batches;
}

static int
finish_pass(Batches *self, PyObject *is_left)
{
    PyObject *finish = self->finish;
    int failed;
    self->finish = NULL;
    failed = call(finish, is_left);
    Py_XDECREF(finish);
    return failed;
}

static PyObject *
batches_next(Batches *self)
{
    StepTimer *timer = self->timer;
    PyObject *batch, *got = NULL;
    long long asked_ns;
    if (self->finish == NULL)
        return NULL;
    if (self->is_given && end_batch(timer, now_ns()) < 0)
        return NULL;
    self->is_given = 0;
    Py_CLEAR(timer->held);
    if (is_set(timer->on_got)) {
        got = timer->on_got;
        Py_INCREF(got);
        if (call(timer->on_asked, NULL) < 0) {
            Py_DECREF(got);
            return NULL;
        }
    }
    asked_ns = now_ns();
    batch = PyIter_Next(self->source);
    if (got == NULL)
        timer->waited_ns += now_ns() - asked_ns;
    else if (batch != NULL && call(got, NULL) < 0)
        Py_CLEAR(batch);
    Py_XDECREF(got);
    if (batch == NULL) {
        PyObject *type, *error, *trace;
        PyErr_Fetch(&type, &error, &trace);
        if (finish_pass(self, Py_False) < 0 && type != NULL)
            PyErr_Clear(); /* the loader's own exception is more important */
        if (type != NULL)
            PyErr_Restore(type, error, trace);
        return NULL;
    }
    Py_INCREF(batch);
    timer->held = batch;
    self->is_given = 1;
    return batch;
}

static int
batches_traverse(Batches *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->timer);
    Py_VISIT(self->source);
    Py_VISIT(self->finish);
    return 0;
}

static int
batches_clear(Batches *self)
{
    Py_CLEAR(self->timer);
    Py_CLEAR(self->source);
    Py_CLEAR(self->finish);
    return 0;
}

/* Called when the loop has left before the last batch, and the iterator is deleted. */
static void
batches_finalize(Batches *self)
{
    PyObject *type, *error, *trace, *finish = self->finish;
    if (finish == NULL)
        return;
    PyErr_Fetch(&type, &error, &trace);
    Py_INCREF(finish);
    if (finish_pass(self, Py_True) < 0)
        PyErr_WriteUnraisable(finish);
    Py_DECREF(finish);
    PyErr_Restore(type, error, trace);
}

static void
batches_dealloc(Batches *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    batches_finalize(self);
    batches_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef timer_methods[] = {
    {"optimizer_stepped", (PyCFunction)(void (*)(void))timer_optimizer_stepped, METH_FASTCALL, NULL},
    {"ends_step", (PyCFunction)timer_ends_step, METH_O, NULL},
    {"make_step", (PyCFunction)timer_make_step, METH_NOARGS, NULL},
    {"end_logged", (PyCFunction)timer_end_logged, METH_NOARGS, NULL},
    {"end_batch", (PyCFunction)timer_end_batch, METH_NOARGS, NULL},
    {"take", (PyCFunction)timer_take, METH_O, NULL},
    {"batches_of", (PyCFunction)timer_batches_of, METH_VARARGS, NULL},
    {NULL},
};

#define FIELD(name, type) {#name, type, offsetof(StepTimer, name), 0, NULL}

static PyMemberDef timer_members[] = {
    FIELD(began_ns, T_LONGLONG), FIELD(waited_ns, T_LONGLONG),
    FIELD(batches, T_LONGLONG), FIELD(steps_made, T_LONGLONG), FIELD(left, T_LONGLONG),
    FIELD(due_ns, T_LONGLONG), FIELD(most_batches, T_LONGLONG), FIELD(first_step, T_LONGLONG),
    FIELD(stride, T_LONGLONG), FIELD(is_over, T_BOOL),
    FIELD(is_made, T_BOOL), FIELD(in_batches, T_BOOL), FIELD(every_batch, T_BOOL), FIELD(is_special, T_BOOL),
    FIELD(held, T_OBJECT),
    FIELD(on_step, T_OBJECT), FIELD(on_due, T_OBJECT), FIELD(on_batch, T_OBJECT),
    FIELD(on_optimizer, T_OBJECT), FIELD(on_other, T_OBJECT), FIELD(on_asked, T_OBJECT), FIELD(on_got, T_OBJECT),
    {NULL},
};

static PyGetSetDef timer_getset[] = {
    {"step", (getter)timer_get_step, (setter)timer_set_step, NULL, NULL},
    {"last_optimizer", (getter)timer_get_last_optimizer, (setter)timer_set_last_optimizer, NULL, NULL},
    {NULL},
};

static PyType_Slot timer_slots[] = {
    {Py_tp_new, PyType_GenericNew}, {Py_tp_init, timer_init}, {Py_tp_dealloc, timer_dealloc},
    {Py_tp_traverse, timer_traverse}, {Py_tp_clear, timer_clear},
    {Py_tp_methods, timer_methods}, {Py_tp_members, timer_members}, {Py_tp_getset, timer_getset},
    {0, NULL},
};

static PyType_Spec timer_spec = {
    "stepscope.steps._step_timer.StepTimer", sizeof(StepTimer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    timer_slots,
};

static PyType_Slot batches_slots[] = {
    {Py_tp_iter, PyObject_SelfIter}, {Py_tp_iternext, batches_next}, {Py_tp_dealloc, batches_dealloc},
    {Py_tp_traverse, batches_traverse}, {Py_tp_clear, batches_clear}, {Py_tp_finalize, batches_finalize},
    {0, NULL},
};

static PyType_Spec batches_spec = {
    "stepscope.steps._step_timer.Batches", sizeof(Batches), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    batches_slots,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_step_timer", NULL, -1, NULL};

PyMODINIT_FUNC
PyInit__step_timer(void)
{
    PyObject *made = PyModule_Create(&module);
    PyObject *timer_type = PyType_FromSpec(&timer_spec);
    batches_type = (PyTypeObject *)PyType_FromSpec(&batches_spec);
    if (made == NULL || timer_type == NULL || batches_type == NULL
        || PyModule_AddObject(made, "StepTimer", timer_type) < 0) {
        Py_XDECREF(timer_type);
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
