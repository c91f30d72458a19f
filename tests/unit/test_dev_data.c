/* SPDX-License-Identifier: Apache-2.0 */
/* Windows in text and token files; words and merges in the tokenizer. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include "base/random.h"
#include "runtime/device/data.h"
#include "runtime/device/tokenizer.h"

#include "test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_file(char *path, const void *bytes, size_t n)
{
    strcpy(path, "/tmp/lh-data-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, bytes, n), (int64_t)n);
    close(fd);
}

/* Checks that each epoch has every window once, in a different order, without
 * the validation part. */
static void windows(void)
{
    enum { N = 1000, S = 7 };
    uint16_t tokens[N];
    char path[32];
    lh_error err;
    lhi_data *data;
    int32_t w[S + 1];
    for (int i = 0; i < N; i++)
        tokens[i] = (uint16_t)(i + 256);
    write_file(path, tokens, sizeof tokens);
    lhi_data_options o = {.path = path,
                          .kind = LHI_DATA_U16,
                          .vocab = 2000,
                          .sequence = S,
                          .validation = 0.1,
                          .seed = 4};
    CHECK_OK(lhi_data_open(&o, &data, &err), err);
    CHECK_INT(lhi_data_n_tokens(data), N);
    uint64_t n = lhi_data_n_windows(data, 0), same = 0;
    CHECK_INT(n, 899 / S);
    CHECK_INT(lhi_data_n_windows(data, 1), 99 / S);
    int32_t *first = calloc(n, sizeof *first);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        bool seen[N] = {false};
        for (uint64_t i = 0; i < n; i++) {
            CHECK_OK(lhi_data_read_window(data, 0, epoch * n + i, w, &err),
                     err);
            int32_t at = w[0] - 256;
            CHECK(at >= 0 && at % S == 0 && at + S < 900 && !seen[at]);
            seen[at] = true;
            for (int j = 0; j <= S; j++)
                CHECK_INT(w[j], 256 + at + j);
            same += epoch > 0 && first[i] == at;
            first[i] = at;
        }
    }
    CHECK_MSG(same < n / 4, "%u windows are where they were", (unsigned)same);
    for (uint64_t i = 0; i < 30; i++) {
        CHECK_OK(lhi_data_read_window(data, 1, i, w, &err), err);
        CHECK_INT(w[0], 256 + 900 + (int)(i % 14) * S);
    }
    free(first);
    lhi_data_close(data);
    o.vocab = 800;
    CHECK_OK(lhi_data_open(&o, &data, &err), err);
    CHECK_INT(lhi_data_read_window(data, 1, 0, w, &err), LH_EINPUT);
    CHECK_HAS(err.text, "token 900 is 1156, but the model's vocabulary has");
    CHECK_INT(truncate(path, 100), 0);
    CHECK_INT(lhi_data_read_window(data, 1, 0, w, &err), LH_EIO);
    CHECK_HAS(err.text, "was truncated while in use; restore it");
    lhi_data_close(data);
    CHECK_INT(truncate(path, 99), 0);
    CHECK_INT(lhi_data_open(&o, &data, &err), LH_EINPUT);
    CHECK_HAS(err.text, "not a multiple of 2-byte tokens");
    CHECK_INT(truncate(path, 10), 0);
    CHECK_INT(lhi_data_open(&o, &data, &err), LH_EINPUT);
    CHECK_HAS(err.text, "too few");
    unlink(path);
    CHECK_INT(lhi_data_open(&o, &data, &err), LH_EIO);
}

/* One byte of another value, or the same one: the file may not be written. */
static void a_file_that_is_written_during_the_run_is_detected(void)
{
    unsigned char bytes[100];
    char path[32];
    lh_error err;
    lhi_data *data;
    int32_t w[4];
    struct stat info;
    memset(bytes, 7, sizeof bytes);
    write_file(path, bytes, sizeof bytes);
    const lhi_data_options o = {
        .path = path, .kind = LHI_DATA_BYTES, .vocab = 256, .sequence = 3};
    for (int i = 0; i < 4; i++) {
        CHECK_OK(lhi_data_open(&o, &data, &err), err);
        CHECK_OK(lhi_data_read_window(data, 0, 0, w, &err), err);
        const int fd = open(path, O_WRONLY | (i == 1 ? O_APPEND : 0));
        CHECK(fd >= 0 && fstat(fd, &info) == 0);
        if (i == 1 || i == 2) /* one byte more; one byte of another value */
            CHECK_INT(write(fd, "x", 1), 1);
        /* The clock of file systems ticks only every few milliseconds. */
        struct timespec times[] = {info.st_atim, info.st_mtim};
        times[1].tv_sec += i == 2 || i == 3;
        CHECK_INT(futimens(fd, times), 0);
        close(fd);
        CHECK_INT(lhi_data_read_window(data, 0, 0, w, &err),
                  i == 0 ? LH_OK : LH_EIO);
        if (i > 0)
            CHECK_HAS(err.text, "was changed while in use");
        lhi_data_close(data);
    }
    unlink(path);
}

static void kinds(void)
{
    const unsigned char bytes[] = {1, 0, 0, 0, 255, 255, 255, 255,
                                   2, 0, 1, 0, 7,   0,   0,   0};
    char path[32];
    lh_error err;
    lhi_data *data;
    int32_t w[4];
    write_file(path, bytes, sizeof bytes);
    lhi_data_options o = {
        .path = path, .kind = LHI_DATA_BYTES, .vocab = 256, .sequence = 3};
    CHECK_OK(lhi_data_open(&o, &data, &err), err);
    CHECK_INT(lhi_data_n_windows(data, 0), 5);
    CHECK_INT(lhi_data_n_windows(data, 1), 0);
    CHECK_INT(lhi_data_read_window(data, 1, 0, w, &err), LH_EINVAL);
    lhi_data_close(data);
    o.kind = LHI_DATA_U32, o.sequence = 1, o.vocab = 70000;
    CHECK_OK(lhi_data_open(&o, &data, &err), err);
    int bad = 0;
    for (uint64_t i = 0; i < 3; i++)
        if (lhi_data_read_window(data, 0, i, w, &err) != LH_OK) {
            bad++;
            CHECK_HAS(err.text,
                      "token 1 is 4294967295, but the model's vocabulary has");
        }
    CHECK_INT(bad, 2); /* two windows contain 0xffffffff */
    lhi_data_close(data);
    unlink(path);
}

static void words(void)
{
    static const char *const cases[][8] = {
        {"Hello", " world", "!", NULL},
        {"don", "'t", " 12", "ab", "  ", " x", NULL},
        {"a", "   ", NULL},
        {"we", "'ll", " '", "S", "\n\n", "\n", "z", NULL},
        {"na\xc3\xafve", " \xe4\xb8\xad\xe6\x96\x87", "\xc2\xb2", "\xc2\xa0",
         "\xe2\x80\x94", "x", NULL},
        {"\xff\xfe", " \xc3", "(", NULL}, /* not UTF-8; "(" joins */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] - 1; i++) {
        char text[128] = "";
        for (size_t j = 0; cases[i][j]; j++)
            strcat(text, cases[i][j]);
        size_t at = 0, len = strlen(text);
        for (size_t j = 0; cases[i][j]; j++) {
            size_t n =
                lhi_pretokenize_word(LHI_WORDS_GPT2, text + at, len - at);
            CHECK_MSG(n == strlen(cases[i][j]), "case %zu, word %zu: %zu bytes",
                      i, j, n);
            at += strlen(cases[i][j]);
        }
        CHECK_INT(at, len);
    }
    CHECK_INT(lhi_pretokenize_word(LHI_WORDS_GPT2, "\xff\xfe(", 3), 3);
}

/* Checks the words of Llama 3's and Qwen 2's rules. */
static void other_words(void)
{
    static const struct {
        lhi_word_rule rule;
        const char *words[8];
    } cases[] = {
        {LHI_WORDS_LLAMA3, {"I", "'M", " we", "'ll", "(ab", "((", "\tx"}},
        {LHI_WORDS_LLAMA3, {"123", "45", "a", " ", " ", "6", " ..\n\n"}},
        {LHI_WORDS_QWEN2, {"1", "2", "  \n \n", " ", " b", "\n", "c"}},
        {LHI_WORDS_QWEN2, {"'\xc5\xbf", "\xe4\xb8\xad", " ", "\xc2\xb2"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128] = "";
        for (size_t j = 0; j < 8 && cases[i].words[j]; j++)
            strcat(text, cases[i].words[j]);
        size_t at = 0, len = strlen(text);
        for (size_t j = 0; j < 8 && cases[i].words[j]; j++) {
            size_t n = lhi_pretokenize_word(cases[i].rule, text + at, len - at);
            CHECK_MSG(n == strlen(cases[i].words[j]),
                      "case %zu, word %zu: %zu bytes", i, j, n);
            at += strlen(cases[i].words[j]);
        }
    }
    CHECK_INT(lhi_pretokenize_word(LHI_WORDS_NONE, "it's", 4), 4);
    CHECK_INT(lhi_pretokenize_word(LHI_WORDS_GPT2, "'\xc5\xbf", 3), 1);
    CHECK_INT(lhi_pretokenize_word(LHI_WORDS_QWEN2, "'\xc5\xbf", 3), 3);
}

/* Checks Unicode's normal form C: composition, order, Hangul, blocked marks,
 * and bytes that are not UTF-8. */
static void normal_form(void)
{
    static const char *const cases[][2] = {
        {"e\xcc\x81!", "\xc3\xa9!"},
        {"a\xcc\x82\xcc\xa3", "\xe1\xba\xad"}, /* by their classes */
        {"\xe2\x84\xab", "\xc3\x85"},          /* the Angstrom sign */
        {"\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"},
        {"a\xcc\xb8\xcc\x81", "\xc3\xa1\xcc\xb8"},
        {"a\xcc\x85\xcc\x81", "a\xcc\x85\xcc\x81"}, /* blocked */
        {"\xe0\xa4\x95\xe0\xa4\xbc", "\xe0\xa4\x95\xe0\xa4\xbc"},
        {"\xff e\xcc\x81\xcc", "\xff \xc3\xa9\xcc"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lh_error err;
        char *out;
        size_t n;
        CHECK_OK(lhi_text_normalize(cases[i][0], strlen(cases[i][0]), &out, &n,
                                    &err),
                 err);
        CHECK_MSG(n == strlen(cases[i][1]) && memcmp(out, cases[i][1], n) == 0,
                  "case %zu: %zu bytes", i, n);
        free(out);
    }
}

static const char bpe[] =
    "{\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\","
    "\"add_prefix_space\": false}, \"model\": {\"type\": \"BPE\", \"vocab\":"
    "{\"a\": 0, \"b\": 1, \"c\": 2, \"\xc4\xa0\": 3, \"ab\": 4, \"abc\": 5,"
    "\"bc\": 6, \"\xc4\xa0"
    "a\": 7, \"aa\": 8},"
    "\"merges\": [\"b c\", \"a b\", [\"\xc4\xa0\", \"a\"], \"a bc\","
    "\"a a\"]}}";

static void merges(void)
{
    static const struct {
        const char *text;
        size_t n;
        uint32_t tokens[8];
    } cases[] = {
        {"abc", 1, {5}},         {"ab", 1, {4}}, {"ab abc", 3, {4, 7, 6}},
        {"aaaaa", 3, {8, 8, 0}}, {"", 0, {0}},   {"cab", 2, {2, 4}},
    };
    lh_error err;
    lhi_tokenizer *t;
    CHECK_OK(lhi_tokenizer_parse(bpe, strlen(bpe), "t.json", &t, &err), err);
    CHECK_INT(lhi_tokenizer_size(t), 9);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t *tokens;
        size_t n;
        CHECK_OK(lhi_tokenizer_encode(t, cases[i].text, strlen(cases[i].text),
                                      &tokens, &n, &err),
                 err);
        CHECK_MSG(n == cases[i].n, "%s: %zu tokens", cases[i].text, n);
        for (size_t j = 0; j < n && j < cases[i].n; j++)
            CHECK_INT(tokens[j], cases[i].tokens[j]);
        lhi_tokens_free(tokens);
    }
    uint32_t *none;
    size_t n;
    CHECK_INT(lhi_tokenizer_encode(t, "abd", 3, &none, &n, &err), LH_EINPUT);
    CHECK_HAS(err.text, "no token for byte 100");
    lhi_tokenizer_free(t);
}

static void refused(void)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[]", "model is not of type BPE"},
        {"{", "t.json:1"},
        {"{\"model\": {\"type\": \"Unigram\"}}", "not of type BPE"},
        {"{\"model\": {}, \"normalizer\": {\"type\": \"NFC\"}}",
         "neither ByteLevel nor Split"},
        {"{\"model\": {}, \"normalizer\": {\"type\": \"NFKC\"}}",
         "has a normalizer other than NFC"},
        {"{\"model\": {}, \"pre_tokenizer\": {\"type\": \"Metaspace\"}}",
         "neither ByteLevel nor Split"},
        {"{\"model\": {}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
         "model.vocab is missing"},
        {"{\"model\": {\"vocab\": {\"a\": -1}, \"merges\": []},"
         "\"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
         "a token is not a number"},
        {"{\"model\": {\"vocab\": {\"a\": 1}, \"merges\": [\"a a\"]},"
         "\"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
         "entry 0 is not a pair"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lh_error err;
        lhi_tokenizer *t;
        CHECK(lhi_tokenizer_parse(cases[i].text, strlen(cases[i].text),
                                  "t.json", &t, &err) != LH_OK);
        CHECK_HAS(err.text, cases[i].says);
    }
}

/* Opens the data of `paths` with windows of two tokens. */
static lh_status open_data(const char *paths, lhi_data_kind kind,
                           const char *validation, lhi_data **out,
                           lh_error *err)
{
    return lhi_data_open(&(lhi_data_options){.path = paths,
                                             .kind = kind,
                                             .vocab = 1000,
                                             .sequence = 2,
                                             .validation_path = validation,
                                             .seed = 4},
                         out, err);
}

/* Checks that files are one sequence, whose windows may begin in one file and
 * end in another, and that validation files are read in order. */
static void shards(void)
{
    char a[32], b[32], both[32], list[80];
    lh_error err;
    lhi_data *one, *parts;
    lhi_data_fingerprint sums[2];
    uint64_t validation;
    int32_t v[3], w[3];
    write_file(a, "abcdefg", 7);
    write_file(b, "hijklmnopq", 10);
    write_file(both, "abcdefghijklmnopq", 17);
    snprintf(list, sizeof list, "%s;%s", a, b);
    CHECK_OK(open_data(both, LHI_DATA_BYTES, NULL, &one, &err), err);
    CHECK_OK(open_data(list, LHI_DATA_BYTES, list, &parts, &err), err);
    CHECK_INT(lhi_data_n_windows(parts, 0), 8);
    for (uint64_t i = 0; i < 20; i++) {
        CHECK_OK(lhi_data_read_window(one, 0, i, v, &err), err);
        CHECK_OK(lhi_data_read_window(parts, 0, i, w, &err), err);
        CHECK_INT(memcmp(v, w, sizeof v), 0);
    }
    CHECK_OK(lhi_data_compute_fingerprint(one, &sums[0], &err), err);
    CHECK_OK(lhi_data_compute_fingerprint(parts, &sums[1], &err), err);
    CHECK(sums[0].value == sums[1].value);
    CHECK(sums[0].value == sums[0].sampled);
    CHECK_OK(lhi_data_hash_validation(parts, &validation, &err), err);
    CHECK(sums[0].value == validation); /* the same tokens */
    CHECK_OK(lhi_data_hash_validation(one, &validation, &err), err);
    CHECK_INT(validation, 0);
    CHECK_INT(lhi_data_n_windows(parts, 1), 8);
    CHECK_OK(lhi_data_read_window(parts, 1, 3, w, &err), err);
    CHECK(w[0] == 'g' && w[1] == 'h' && w[2] == 'i');
    lhi_data_close(one);
    lhi_data_close(parts);
    CHECK_INT(open_data(a, LHI_DATA_BYTES, "/nowhere", &one, &err), LH_EIO);
    CHECK_HAS(err.text, "/nowhere: No such file");
    unlink(a);
    unlink(b);
    unlink(both);
}

/* Checks that the fingerprint of more than 2^24 tokens covers a token in a
 * block that the samples skip, in training and validation files, and that the
 * samples' value is the documented one of older checkpoints. */
static void large_files(void)
{
    /* Sampled block i of 0..4095 is i * 4097 / 4095: 2048 is skipped. */
    enum { BLOCK = 4096, BLOCKS = 4098, SKIPPED = 2048 * BLOCK + 5 };
    lhi_data_fingerprint sums[2];
    uint64_t validation[2], sampled = lhi_mix64((uint64_t)BLOCK * BLOCKS);
    char path[32];
    lh_error err;
    write_file(path, "", 0);
    CHECK_INT(truncate(path, (off_t)BLOCK * BLOCKS), 0);
    for (int i = 0; i < 2; i++) {
        lhi_data *data;
        const int fd = open(path, O_WRONLY);
        CHECK(fd >= 0 && pwrite(fd, i ? "x" : "", 1, SKIPPED) == 1);
        close(fd);
        CHECK_OK(open_data(path, LHI_DATA_BYTES, path, &data, &err), err);
        CHECK_OK(lhi_data_compute_fingerprint(data, &sums[i], &err), err);
        CHECK_OK(lhi_data_hash_validation(data, &validation[i], &err), err);
        CHECK(validation[i] == sums[i].value);
        lhi_data_close(data);
    }
    unlink(path);
    CHECK(sums[0].value != sums[1].value);
    for (uint32_t i = 0; i < 4096 * BLOCK; i++) /* tokens of value 0 */
        sampled = lhi_mix64(sampled);
    CHECK(sums[0].sampled == sampled);
    CHECK(sums[1].sampled == sampled);
}

/* Checks the order of a mixture's sequences: that of Megatron-LM's blended
 * datasets for the same weights, again and again; and their samples. */
static void mixtures(void)
{
    static const int order[] = {0, 1, 2, 0}; /* of weights 2, 1, 1 */
    static const char letters[] = "aAx";
    char path[3][32], list[140];
    lh_error err;
    lhi_data *data, *alone;
    lhi_data_fingerprint sums[2];
    int32_t v[3], w[3];
    write_file(path[0], "abcdefghijk", 11); /* 5 windows */
    write_file(path[1], "ABCDEFG", 7);
    write_file(path[2], "xyzxyzxyz", 9);
    snprintf(list, sizeof list, "0.5=%s;.25=%s;0.25=%s", path[0], path[1],
             path[2]);
    CHECK_OK(open_data(list, LHI_DATA_BYTES, NULL, &data, &err), err);
    CHECK_INT(lhi_data_n_windows(data, 0), 12);
    for (uint64_t i = 0; i < 8200; i++) {
        CHECK_OK(lhi_data_read_window(data, 0, i, w, &err), err);
        const int of = w[0] >= 'x' ? 2 : w[0] < 'a';
        CHECK_MSG(of == order[i % 4], "sample %u is of '%c'", (unsigned)i,
                  letters[of]);
    }
    /* the n-th sample of the first file is the n-th of that file alone */
    CHECK_OK(open_data(path[0], LHI_DATA_BYTES, NULL, &alone, &err), err);
    for (uint64_t i = 0; i < 12; i++) {
        CHECK_OK(lhi_data_read_window(data, 0, 8192 + 2 * i + i % 2, w, &err),
                 err);
        CHECK_OK(lhi_data_read_window(alone, 0, 4096 + i, v, &err), err);
        CHECK_INT(memcmp(v, w, sizeof v), 0);
    }
    CHECK_OK(lhi_data_compute_fingerprint(data, &sums[0], &err), err);
    lhi_data_close(alone);
    lhi_data_close(data);
    snprintf(list, sizeof list, "1=%s;2=%s;1=%s", path[0], path[1], path[2]);
    CHECK_OK(open_data(list, LHI_DATA_BYTES, NULL, &data, &err), err);
    CHECK_OK(lhi_data_compute_fingerprint(data, &sums[1], &err), err);
    CHECK(sums[0].value != sums[1].value);
    lhi_data_close(data);
    /* a weight of less than one sample of a period is one */
    snprintf(list, sizeof list, "1e9=%s;1=%s;1=%s", path[0], path[1], path[2]);
    CHECK_OK(open_data(list, LHI_DATA_BYTES, NULL, &data, &err), err);
    int rare = 0;
    for (uint64_t i = 0; i < 4096; i++) {
        CHECK_OK(lhi_data_read_window(data, 0, i, w, &err), err);
        rare += w[0] < 'a' || w[0] >= 'x';
    }
    CHECK_INT(rare, 2);
    lhi_data_close(data);
    for (int i = 0; i < 2; i++) {
        snprintf(list, sizeof list, i ? "1=%s;%s" : "1=%s;-1=%s", path[0],
                 path[1]);
        CHECK_INT(open_data(list, LHI_DATA_BYTES, NULL, &data, &err),
                  LH_EINVAL);
        CHECK_HAS(err.text, i ? "give all files a weight" : "above 0");
    }
    for (int i = 0; i < 3; i++)
        unlink(path[i]);
}

/* Checks datasets in Megatron-LM's format, and damaged ones. */
static void indexed(void)
{
    static const unsigned char good[] = {
        'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, /* magic */
        1,   0,   0,   0,   0,   0,   0,   0,    /* version */
        8,                                       /* uint16 */
        2,   0,   0,   0,   0,   0,   0,   0,    /* sequences */
        3,   0,   0,   0,   0,   0,   0,   0,    /* documents + 1 */
        2,   0,   0,   0,   3,   0,   0,   0,    /* lengths */
        0,   0,   0,   0,   0,   0,   0,   0,    /* offsets */
        4,   0,   0,   0,   0,   0,   0,   0,    /* */
        0,   0,   0,   0,   0,   0,   0,   0,    /* documents */
        1,   0,   0,   0,   0,   0,   0,   0,    /* */
        2,   0,   0,   0,   0,   0,   0,   0};   /* */
    static const unsigned char tokens[] = {1, 0, 2, 1, 3, 0, 4, 0, 5, 0};
    static const struct {
        size_t at;
        unsigned char to;
        const char *says;
    } bad[] = {{0, 'X', "not an index of Megatron-LM's"},
               {9, 2, "not an index of Megatron-LM's"},
               {17, 5, "number format 5 is not supported"},
               {18, 3, "are not those of 3 sequences"},
               {25, 99, "are not those of"},
               {38, 4, "its sequences have 12 bytes, but"},
               {50, 6, "sequence 1 does not follow"}};
    char base[32], name[2][40], list[100];
    lh_error err;
    lhi_data *data;
    int32_t w[3];
    write_file(base, "", 0);
    for (int i = 0; i < 2; i++)
        snprintf(name[i], sizeof name[i], "%s.%s", base, i ? "idx" : "bin");
    for (size_t i = 0; i <= sizeof bad / sizeof bad[0]; i++) {
        unsigned char index[sizeof good];
        memcpy(index, good, sizeof good);
        if (i > 0)
            index[bad[i - 1].at] = bad[i - 1].to;
        for (int k = 0; k < 2; k++) {
            FILE *f = fopen(name[k], "wb");
            fwrite(k ? index : tokens, 1, k ? sizeof good : sizeof tokens, f);
            fclose(f);
        }
        if (i > 0) {
            CHECK(open_data(base, LHI_DATA_INDEXED, NULL, &data, &err) !=
                  LH_OK);
            CHECK_HAS(err.text, bad[i - 1].says);
            continue;
        }
        snprintf(list, sizeof list, "%s;%s", base, name[1]);
        CHECK_OK(open_data(list, LHI_DATA_INDEXED, name[0], &data, &err), err);
        CHECK_INT(lhi_data_n_tokens(data), 10);
        CHECK_INT(lhi_data_n_windows(data, 0), 4);
        CHECK_OK(lhi_data_read_window(data, 1, 0, w, &err), err);
        CHECK(w[0] == 1 && w[1] == 258 && w[2] == 3);
        lhi_data_close(data);
    }
    CHECK_INT(truncate(name[1], 20), 0);
    CHECK_INT(open_data(base, LHI_DATA_INDEXED, NULL, &data, &err), LH_EINPUT);
    CHECK_HAS(err.text, "too short for an index");
    unlink(name[1]);
    CHECK_INT(open_data(base, LHI_DATA_INDEXED, NULL, &data, &err), LH_EIO);
    CHECK_HAS(err.text, ".idx: No such file");
    unlink(name[0]);
    unlink(base);
}

static void encoded_file(void)
{
    char text[32], json[32];
    lh_error err;
    lhi_data *data;
    int32_t w[3];
    write_file(text, "abc ab", 6);
    write_file(json, bpe, strlen(bpe));
    lhi_data_options o = {
        .path = text, .tokenizer = json, .vocab = 9, .sequence = 2};
    CHECK_OK(lhi_data_open(&o, &data, &err), err);
    CHECK_INT(lhi_data_n_tokens(data), 3); /* abc, " ", ab */
    CHECK_OK(lhi_data_read_window(data, 0, 0, w, &err), err);
    CHECK_INT(w[0], 5);
    CHECK_INT(w[1], 3);
    CHECK_INT(w[2], 4);
    lhi_data_close(data);
    o.vocab = 8;
    CHECK_INT(lhi_data_open(&o, &data, &err), LH_EINPUT);
    CHECK_HAS(err.text, "has 9 tokens, but the model's vocabulary only 8");
    unlink(text);
    unlink(json);
}

int main(void)
{
    RUN(windows);
    RUN(a_file_that_is_written_during_the_run_is_detected);
    RUN(kinds);
    RUN(words);
    RUN(other_words);
    RUN(normal_form);
    RUN(merges);
    RUN(refused);
    RUN(shards);
    RUN(large_files);
    RUN(mixtures);
    RUN(indexed);
    RUN(encoded_file);
    return test_summary();
}
