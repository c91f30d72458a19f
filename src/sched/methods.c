/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"
#include "sched/sched.h"

#include <string.h>

const lhi_method lhi_methods[] = {
#define METHOD_ROW(name, function, about) {name, function, about},
    LHI_METHOD_LIST(METHOD_ROW)
#undef METHOD_ROW
};
const uint32_t lhi_n_methods = sizeof lhi_methods / sizeof *lhi_methods;

uint32_t lh_n_methods(void)
{
    return lhi_n_methods;
}

const char *lh_method_name(uint32_t method)
{
    return method < lhi_n_methods ? lhi_methods[method].name : NULL;
}

const char *lh_method_about(uint32_t method)
{
    return method < lhi_n_methods ? lhi_methods[method].about : NULL;
}

static lh_status refuse_name(const char *name, lh_error *err)
{
    char names[256] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < lhi_n_methods; i++) {
        const char *parts[] = {i ? ", " : "", lhi_methods[i].name};
        for (uint32_t k = 0; k < 2; k++) {
            size_t len = strlen(parts[k]);
            if (used + len >= sizeof names)
                continue;
            memcpy(names + used, parts[k], len + 1);
            used += len;
        }
    }
    return lhi_fail(err, LH_EINVAL, "there is no method '%.64s'; there are %s",
                    name, names);
}

lh_status lh_method_find(const char *name, uint32_t *out, lh_error *err)
{
    for (uint32_t i = 0; i < lhi_n_methods; i++)
        if (strcmp(lhi_methods[i].name, name) == 0) {
            if (out)
                *out = i;
            return LH_OK;
        }
    return refuse_name(name, err);
}

static lh_status complete(const lh_method_options *given,
                          lh_method_options *out, lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_TAKE(lh_method_options, out, given, err));
    if (out->sub_blocks == 0)
        out->sub_blocks = 1;
    if (out->sub_blocks > LH_MAX_PARTS)
        return lhi_fail(err, LH_EINVAL,
                        "%u sub-blocks are out of range; from 1 to %u",
                        (unsigned)out->sub_blocks, LH_MAX_PARTS);
    return LH_OK;
}

static lh_status run(const lhi_method *method, const lh_pipeline *pipeline,
                     const lh_method_options *options, lh_schedule **out,
                     const char **chosen, lh_error *err)
{
    lhi_orders orders;
    LHI_TRY(method->make(pipeline, options, &orders, err));
    if (!orders.method)
        orders.method = method->name;
    lh_status status = lhi_orders_fit(&orders, pipeline, err);
    if (status == LH_OK)
        status = lhi_orders_schedule(&orders, out, err);
    if (status == LH_OK && chosen)
        *chosen = orders.method;
    lhi_orders_fini(&orders);
    return status;
}

lh_status lh_method_run(const char *name, const lh_pipeline *pipeline,
                        const lh_method_options *options, lh_schedule **out,
                        const char **chosen, lh_error *err)
{
    lh_method_options all;
    LHI_TRY(complete(options, &all, err));
    uint32_t i;
    LHI_TRY(lh_method_find(name, &i, err));
    lh_status status = run(&lhi_methods[i], pipeline, &all, out, chosen, err);
    if (status != LH_OK)
        lhi_wrap(err, "%s", name);
    return status;
}
