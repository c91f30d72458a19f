/* SPDX-License-Identifier: Apache-2.0 */
/* Reader for safetensors (github.com/huggingface/safetensors): eight bytes with
 * a JSON header's length, the header, the values. */
#ifndef LHI_RUNTIME_TRAINING_SAFETENSORS_H
#define LHI_RUNTIME_TRAINING_SAFETENSORS_H

#include <longhaul/status.h>

#include <stdint.h>

/* Supported element types. */
typedef enum lhi_dtype {
    LHI_F32,
    LHI_F16,
    LHI_BF16,
} lhi_dtype;

/* A tensor in the file. */
typedef struct lhi_st_tensor {
    const char *name; /* borrowed from the file */
    lhi_dtype dtype;
    uint32_t n_dims;
    uint64_t dims[4];
    uint64_t n;     /* values */
    uint64_t at;    /* offset in the file */
    uint32_t shard; /* file of several, see lhi_st_open_index() */
} lhi_st_tensor;

typedef struct lhi_safetensors lhi_safetensors;

/* Parses the JSON header of a safetensors file with file_bytes bytes into *out,
 * without opening the file; `name` is for messages. LH_EINPUT: it is damaged.
 * */
lh_status lhi_st_parse(const char *header, size_t len, uint64_t file_bytes,
                       const char *name, lhi_safetensors **out, lh_error *err);
/* Opens a safetensors file (header with names, types and offsets; then values)
 * for reading. LH_EINPUT: it is damaged or has unsupported content. Close with
 * lhi_st_close(). */
lh_status lhi_st_open(const char *path, lhi_safetensors **out, lh_error *err);
/* Opens the files of an index (model.safetensors.index.json), as if they were
 * one; they are in its folder. LH_EINPUT: the index is damaged, or a file lacks
 * a tensor that the index assigns to it. */
lh_status lhi_st_open_index(const char *path, lhi_safetensors **out,
                            lh_error *err);
/* Closes a safetensors file; NULL is allowed. */
void lhi_st_close(lhi_safetensors *file);

/* Finds a tensor by name; *out is borrowed. LH_EINPUT: it is missing, or has
 * another shape than [rows][columns] (columns 0: [rows]). */
lh_status lhi_st_find(const lhi_safetensors *file, const char *name,
                      uint32_t rows, uint32_t columns,
                      const lhi_st_tensor **out, lh_error *err);
/* Reads the tensor's values first .. first + n - 1, converted to float. */
lh_status lhi_st_read(const lhi_safetensors *file, const lhi_st_tensor *tensor,
                      uint64_t first, size_t n, float *out, lh_error *err);

#endif
