/* SPDX-License-Identifier: Apache-2.0 */
/* Changes bytes of a checkpoint: every change is detected and reported with its
 * file and tensor. */
#define _GNU_SOURCE /* mkdtemp */
#include "training_ranks.h"

#include "runtime/engine/resume.h"

#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>

static char folder[] = "/tmp/lh-damage-XXXXXX";
static lhi_checkpoint_options options = {.folder = folder};
static team writer;

/* A checkpoint file in memory. */
typedef struct content {
    char path[128];
    unsigned char *bytes;
    /* header with its length field; state.json: everything */
    size_t size, header;
} content;

static content read_content(const char *name)
{
    content c = {.bytes = NULL};
    struct stat info;
    snprintf(c.path, sizeof c.path, "%s/step-00000001/%s", folder, name);
    int fd = open(c.path, O_RDONLY);
    CHECK(fd >= 0 && fstat(fd, &info) == 0);
    c.size = (size_t)info.st_size;
    c.bytes = malloc(c.size);
    CHECK_INT(read(fd, c.bytes, c.size), info.st_size);
    close(fd);
    c.header = c.size;
    if (strstr(name, "safetensors")) {
        c.header = 8;
        for (int i = 7; i >= 0; i--)
            c.header += (size_t)c.bytes[i] << (8 * i);
    }
    return c;
}

/* Finds the tensor with byte `at`, from the file's own header; "": none. */
static void tensor_at(const content *c, size_t at, char *out, size_t size)
{
    const char *header = (const char *)c->bytes + 8;
    const char *stop = (const char *)c->bytes + c->header;
    out[0] = '\0';
    for (const char *p = header; at >= c->header && p < stop; p++) {
        size_t from, to;
        int len;
        char name[128];
        if (*p != '"' || memcmp(p, "\"data_offsets\"", 14) != 0 ||
            sscanf(p, "\"data_offsets\":[%zu,%zu]", &from, &to) != 2 ||
            at - c->header < from || at - c->header >= to)
            continue;
        while (memcmp(p, "\":{", 3) != 0)
            p--;
        const char *end = p;
        while (*--p != '"')
            ;
        len = (int)(end - p - 1);
        snprintf(name, sizeof name, "%.*s", len, p + 1);
        snprintf(out, size, "tensor %s ", name);
        return;
    }
}

static lh_status load(bool *is_damaged, lh_error *err)
{
    const uint64_t step = 1;
    *err = (lh_error){0};
    lhi_load_result loaded;
    const lh_status status = lhi_train_load_one(writer.t[0][0], folder, &step,
                                                &options, NULL, &loaded, err);
    *is_damaged = loaded.is_damaged;
    return status;
}

/* Flips the bits of `mask` in byte `at`. */
static void damage_byte(const content *c, int fd, size_t at, unsigned char mask)
{
    unsigned char byte = c->bytes[at] ^ mask;
    char tensor[160];
    bool is_damaged;
    lh_error err;
    CHECK_INT(pwrite(fd, &byte, 1, (off_t)at), 1);
    lh_status status = load(&is_damaged, &err);
    tensor_at(c, at, tensor, sizeof tensor);
    CHECK_MSG(status == LH_EINPUT || status == LH_EUNSUPPORTED,
              "%s, byte %zu: status %d", c->path, at, status);
    /* Another format version is not damage, even if a flipped bit caused it. */
    CHECK_MSG(is_damaged || strstr(err.text, "has format"), "%s, byte %zu: %s",
              c->path, at, err.text);
    CHECK_HAS(err.text, c->path);
    CHECK_HAS(err.text, tensor);
    CHECK_INT(pwrite(fd, &c->bytes[at], 1, (off_t)at), 1);
}

/* Damages every `few`th byte of the header, every `stride`th of the values, and
 * those at both ends of a tensor. */
static void damage_file(const char *name, size_t few, size_t stride)
{
    content c = read_content(name);
    char here[160], before[160] = "", behind[160];
    int fd = open(c.path, O_WRONLY);
    int n_tensors = 0;
    for (size_t at = 0; at < c.size && !test_state.bad; at++) {
        tensor_at(&c, at, here, sizeof here);
        tensor_at(&c, at + 1, behind, sizeof behind);
        bool at_end = strcmp(here, before) != 0 || strcmp(here, behind) != 0;
        n_tensors += strcmp(here, before) != 0;
        snprintf(before, sizeof before, "%s", here);
        if (at_end || at % (at < c.header ? few : stride) == 0)
            damage_byte(&c, fd, at, (unsigned char)(1u << at % 8));
    }
    CHECK_MSG(n_tensors == 0 || n_tensors >= 12, "%d tensors", n_tensors);
    close(fd);
    free(c.bytes);
}

static void a_byte_of_the_weights(void)
{
    damage_file("model.safetensors", 1, 2003);
}

static void a_byte_of_the_moments(void)
{
    damage_file("optimizer.safetensors", 3, 2003);
}

/* Checks whether the JSON keeps its meaning with the bits of `mask` in byte
 * `at` flipped: white space, and digits beyond double precision. */
static bool says_the_same(content *c, const json_t *said, size_t at,
                          unsigned char mask)
{
    c->bytes[at] ^= mask;
    json_t *now = json_loadb((const char *)c->bytes, c->size, 0, NULL);
    bool same = now && json_equal(said, now);
    json_decref(now);
    c->bytes[at] ^= mask;
    return same;
}

static void a_byte_of_the_state(void)
{
    content c = read_content("state.json");
    json_t *said = json_loadb((const char *)c.bytes, c.size, 0, NULL);
    int fd = open(c.path, O_WRONLY);
    size_t same = 0;
    for (size_t at = 0; at < c.size && !test_state.bad; at++) {
        const unsigned char mask = (unsigned char)(1u << at % 7);
        /* A byte that is no longer white space is invalid JSON, and reported.
         */
        if (says_the_same(&c, said, at, mask))
            same++;
        else
            damage_byte(&c, fd, at, mask);
    }
    CHECK_MSG(same <= 4, "%zu bytes say nothing", same);
    json_decref(said);
    close(fd);
    free(c.bytes);
}

static void a_file_that_is_longer_or_shorter(void)
{
    static const char *const names[] = {"model.safetensors",
                                        "optimizer.safetensors", "state.json"};
    for (size_t i = 0; i < 3; i++) {
        content c = read_content(names[i]);
        for (size_t size = 0; size < c.size + 3; size += c.size / 7 + 1) {
            bool is_damaged;
            lh_error err;
            size_t cut = size < c.size ? size : c.size + 1;
            CHECK_INT(truncate(c.path, (off_t)cut), 0);
            CHECK_MSG(load(&is_damaged, &err) == LH_EINPUT && is_damaged,
                      "%s of %zu bytes: %s", c.path, cut, err.text);
            CHECK_HAS(err.text, c.path);
            int fd = open(c.path, O_WRONLY | O_TRUNC);
            CHECK_INT(write(fd, c.bytes, c.size), c.size);
            close(fd);
        }
        free(c.bytes);
    }
}

static char remarked[600];

static void keep_remark(void *context, const char *text)
{
    (void)context;
    snprintf(remarked, sizeof remarked, "%s", text);
}

/* Files for other programs may be changed: that gives a remark only. */
static void a_byte_of_the_config(void)
{
    const uint64_t step = 1;
    const lhi_remarks remarks = {.print = keep_remark};
    content c = read_content("config.json");
    int fd = open(c.path, O_WRONLY);
    lhi_load_result loaded;
    lh_error err;
    for (size_t at = 0; at < c.size; at++) {
        unsigned char byte = c.bytes[at] ^ 1;
        CHECK_INT(pwrite(fd, &byte, 1, (off_t)at), 1);
        remarked[0] = '\0';
        CHECK_OK(lhi_train_load_one(writer.t[0][0], folder, &step, &options,
                                    &remarks, &loaded, &err),
                 err);
        CHECK_HAS(remarked, "config.json: has changed since it was written");
        CHECK_INT(pwrite(fd, &c.bytes[at], 1, (off_t)at), 1);
    }
    remarked[0] = '\0';
    CHECK_OK(lhi_train_load_one(writer.t[0][0], folder, &step, &options,
                                &remarks, &loaded, &err),
             err);
    CHECK_STR(remarked, "");
    close(fd);
    free(c.bytes);
}

/* Another run writes a checkpoint while loading rejects the only existing one.
 */
static void write_newer(void *context, const char *text)
{
    char hidden[128], newer[128];
    (void)context;
    snprintf(hidden, sizeof hidden, "%s/hidden", folder);
    snprintf(newer, sizeof newer, "%s/step-00000001", folder);
    if (strstr(text, "step 0 is skipped"))
        CHECK_INT(rename(hidden, newer), 0);
    keep_remark(NULL, text);
}

static void what_comes_meanwhile_is_found(void)
{
    char hidden[128], newer[128], gone[128], state[160];
    lh_error err = {0};
    lhi_net *net = NULL;
    snprintf(hidden, sizeof hidden, "%s/hidden", folder);
    snprintf(newer, sizeof newer, "%s/step-00000001", folder);
    snprintf(gone, sizeof gone, "%s/step-00000000", folder);
    snprintf(state, sizeof state, "%s/state.json", gone);
    CHECK_INT(rename(newer, hidden), 0);
    CHECK_INT(mkdir(gone, 0700), 0);
    int fd = open(state, O_WRONLY | O_CREAT, 0600);
    CHECK_INT(write(fd, "{", 1), 1);
    close(fd);
    CHECK_OK(lhi_net_inproc(1, 0, NULL, &net, &err), err);
    lhi_resume_options o = {.train = writer.t[0][0],
                            .net = net,
                            .path = folder,
                            .checkpoint = &options,
                            .remarks = {.print = write_newer}};
    CHECK_OK(lhi_resume(&o, &err), err);
    CHECK_HAS(remarked, "resuming from step 1");
    lhi_net_close(net);
    unlink(state);
    rmdir(gone);
}

static void what_is_whole_loads(void)
{
    bool is_damaged;
    lh_error err;
    CHECK_OK(load(&is_damaged, &err), err);
    CHECK(!is_damaged);
}

int main(void)
{
    lh_error err;
    team_layers = 1;
    writer = open_team(1, 1, 1, false);
    if (!mkdtemp(folder))
        return 1;
    team_step(&writer);
    options.recipe = team_recipe();
    save_all(&writer, &options);
    CHECK_OK(lhi_train_load(writer.t[0][0], folder, &options, &err), err);
    RUN(a_byte_of_the_weights);
    RUN(a_byte_of_the_moments);
    RUN(a_byte_of_the_state);
    RUN(a_file_that_is_longer_or_shorter);
    RUN(a_byte_of_the_config);
    RUN(what_is_whole_loads);
    RUN(what_comes_meanwhile_is_found);
    remove_all(folder);
    close_team(&writer);
    return test_summary();
}
