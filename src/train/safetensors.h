/* SPDX-License-Identifier: Apache-2.0 */
/* Reading safetensors (github.com/huggingface/safetensors): eight bytes with
 * the length of a JSON header, the header, the values. */
#ifndef LHI_SAFETENSORS_H
#define LHI_SAFETENSORS_H

#include <longhaul/status.h>

#include <stdint.h>

typedef enum lhi_dtype {
    LHI_F32,
    LHI_F16,
    LHI_BF16,
} lhi_dtype;

typedef struct lhi_st_tensor {
    const char *name; /* of the file's tensors; borrowed */
    lhi_dtype dtype;
    uint32_t n_dims;
    uint64_t dims[4];
    uint64_t n;  /* values */
    uint64_t at; /* in the file */
} lhi_st_tensor;

typedef struct lhi_safetensors lhi_safetensors;

/* The header alone, of a file of `file_bytes`: for lhi_st_open() and for
 * fuzzing. */
lh_status lhi_st_parse(const char *header, size_t len, uint64_t file_bytes,
                       const char *name, lhi_safetensors **out, lh_error *err);
/* Keeps the file open. LH_EINPUT: it is damaged or has what is not known. */
lh_status lhi_st_open(const char *path, lhi_safetensors **out, lh_error *err);
void lhi_st_close(lhi_safetensors *file); /* NULL is fine */

/* LH_EINPUT: no such tensor, or its shape is not [rows][columns] (columns 0:
 * [rows]). *out is borrowed. */
lh_status lhi_st_find(const lhi_safetensors *file, const char *name,
                      uint32_t rows, uint32_t columns,
                      const lhi_st_tensor **out, lh_error *err);
/* Values first .. first + n - 1, as floats whatever they are in the file. */
lh_status lhi_st_read(const lhi_safetensors *file, const lhi_st_tensor *tensor,
                      uint64_t first, size_t n, float *out, lh_error *err);

#endif
