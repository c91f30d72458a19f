/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline in the number format reads back as the same pipeline; truncated
 * input is rejected. */
#include "random_pipeline.h"
#include "test.h"

#include "schedule/pipeline/file/serialize.h"

#include <string.h>

static void numbers_read_back(void)
{
    rng r = {7};
    const random_shape shape = {.everything = true};
    for (int i = 0; i < 200; i++) {
        lh_pipeline *p = random_pipeline(&r, &shape), *back = NULL;
        lhi_text numbers = {0};
        lh_error err;
        char *a, *b;
        CHECK_OK(lhi_pipeline_serialize(p, &numbers, &err), err);
        CHECK_OK(
            lhi_pipeline_deserialize(numbers.data, numbers.len, &back, &err),
            err);
        CHECK_OK(lh_pipeline_format(p, &a, NULL, &err), err);
        CHECK_OK(lh_pipeline_format(back, &b, NULL, &err), err);
        CHECK(strcmp(a, b) == 0);
        lh_pipeline *none = NULL; /* without the last space */
        CHECK_INT(lhi_pipeline_deserialize(numbers.data, numbers.len - 1, &none,
                                           &err),
                  LH_EINPUT);
        CHECK(!none);
        lh_text_free(a);
        lh_text_free(b);
        lhi_text_fini(&numbers);
        lh_pipeline_free(back);
        lh_pipeline_free(p);
    }
}

int main(void)
{
    RUN(numbers_read_back);
    return test_summary();
}
