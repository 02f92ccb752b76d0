/* Makes frames of rows like `row_frames_in_python` in packing.py, many times as fast: steps are written some
 * hundred at a time, in the training thread. Uses only the stable ABI.
 */

#define Py_LIMITED_API 0x030a0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define MAX_FIELDS 63

/* crc_table[n] is the effect of a byte on the checksum when n bytes follow it: eight are looked up at a time. */
static uint32_t crc_table[8][256];

static void
fill_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? 0xEDB88320u ^ (crc >> 1) : crc >> 1;
        crc_table[0][byte] = crc;
    }
    for (int after = 1; after < 8; after++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_table[after - 1][byte];
            crc_table[after][byte] = crc_table[0][crc & 0xFF] ^ (crc >> 8);
        }
}

/* Of whole words of eight bytes. */
static uint32_t
crc32_of(const unsigned char *bytes, size_t words, uint32_t begun_with)
{
    uint32_t crc = ~begun_with;
    for (; words--; bytes += 8)
        crc = crc_table[7][bytes[0] ^ (crc & 0xFF)] ^ crc_table[6][bytes[1] ^ (crc >> 8 & 0xFF)]
            ^ crc_table[5][bytes[2] ^ (crc >> 16 & 0xFF)] ^ crc_table[4][bytes[3] ^ crc >> 24]
            ^ crc_table[3][bytes[4]] ^ crc_table[2][bytes[5]] ^ crc_table[1][bytes[6]] ^ crc_table[0][bytes[7]];
    return ~crc;
}

static unsigned char *
put(unsigned char *at, uint64_t value, int bytes)
{
    for (int byte = 0; byte < bytes; byte++)
        *at++ = (unsigned char)(value >> 8 * byte);
    return at;
}

static PyObject *
row_frames(PyObject *module, PyObject *arguments)
{
    unsigned long long head;
    const unsigned char *rows;
    PyObject *sequences, *frames;
    Py_ssize_t bytes, fields, count;
    unsigned char *at;
    if (!PyArg_ParseTuple(arguments, "Ky#nO!", &head, &rows, &bytes, &fields, &PyList_Type, &sequences))
        return NULL;
    count = PyList_Size(sequences);
    if (fields < 0 || fields > MAX_FIELDS || bytes != count * fields * 8) {
        PyErr_SetString(PyExc_ValueError, "row_frames() takes rows of so many fields, and a number for each");
        return NULL;
    }
    frames = PyBytes_FromStringAndSize(NULL, count * (fields + 2) * 8);
    if (frames == NULL)
        return NULL;
    at = (unsigned char *)PyBytes_AsString(frames);
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned char *began = at;
        unsigned long sequence = PyLong_AsUnsignedLong(PyList_GetItem(sequences, i));
        if (PyErr_Occurred()) {
            Py_DECREF(frames);
            return NULL;
        }
        at = put(at, head, 8);
        memcpy(at, rows, (size_t)fields * 8);
        at += fields * 8;
        rows += fields * 8;
        at = put(at, crc32_of(began, (size_t)fields + 1, (uint32_t)sequence), 4);
        at = put(at, sequence, 4);
    }
    return frames;
}

static PyMethodDef methods[] = {{"row_frames", row_frames, METH_VARARGS, NULL}, {NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_row_frames", NULL, -1, methods};

PyMODINIT_FUNC
PyInit__row_frames(void)
{
    fill_crc_table();
    return PyModule_Create(&module);
}
