"""The words that `grammars` puts together: those of the formats, and values that somebody could type."""

from __future__ import annotations

WHOLE = (0, 1, 2, 3, 5, 16, 17, 64, 100, 512, 1000, 4096, 10**5, 10**6, 2**31 - 1, 2**31, 10**9, 10**12, 2**53, 2**63, -1)
CSV_NAMES = ("prompt_tokens", "output_tokens", "arrival_us", "arrival_s", "session", "think_us", "priority", "samples",
             "hash_ids", "max_tokens", "TIMESTAMP", "ContextTokens", "GeneratedTokens", "Timestamp", "Model", "Request tokens",
             "Response tokens", "Total tokens", "Log Type", "Session ID", "Elapsed time", "num_prefill_tokens",
             "num_decode_tokens", "arrived_at", "req_time_s", "client", "prompt_size", "token_size", "arrival_timestamp",
             "request_id", "start_time_offset_ns", "context_tokens", "generated_tokens", "NumImages", "trace", "subagent_path",
             "idx", "t_s", "in_tokens", "out_tokens", "ttft_ms", "tpot_ms", "ttft_s", "concurrency", "", "x")
JSON_NAMES = ("timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay", "chat_id", "parent_chat_id",
              "type", "turn", "input", "output", "input_toks", "output_toks", "arrival_time_ns", "input_tok_ids",
              "output_tok_ids", "input_tokens", "output_tokens", "created_time", "StartTimeOffset", "ContextTokens",
              "GeneratedTokens", "prompt_len", "output_len", "prompt_tokens", "completion_tokens", "conversations", "from",
              "value", "id", "requests", "block_size", "t", "in", "out", "think_time", "input_lens", "output_lens",
              "start_times", "ttfts", "itls", "errors", "duration", "completed", "num_prompts", "request_rate",
              "max_concurrency", "request_id", "sys_prompt", "img_ids", "session")
CONFIG_NAMES = ("model_type", "num_hidden_layers", "n_layer", "num_attention_heads", "num_key_value_heads", "hidden_size",
                "head_dim", "intermediate_size", "moe_intermediate_size", "vocab_size", "max_position_embeddings",
                "tie_word_embeddings", "torch_dtype", "num_experts", "num_local_experts", "n_routed_experts",
                "num_experts_per_tok", "n_shared_experts", "layer_types", "sliding_window", "sliding_window_pattern",
                "max_window_layers", "use_sliding_window", "attention_chunk_size", "no_rope_layer_interval", "kv_lora_rank",
                "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "index_head_dim", "index_n_heads",
                "text_config", "rope_scaling", "rope_parameters", "quantization_config", "hybrid_override_pattern",
                "attn_layer_period", "attn_layer_offset", "expert_layer_period", "decoder_sparse_step", "first_k_dense_replace",
                "moe_layer_freq", "mamba_d_state", "mamba_d_conv", "mamba_expand", "mamba_n_heads", "mamba_d_head",
                "mamba_n_groups", "ssm_state_size", "state_size", "conv_kernel", "linear_num_key_heads", "linear_key_head_dim",
                "linear_value_head_dim", "linear_conv_kernel_dim", "linear_num_value_heads", "full_attention_interval",
                "linear_attn_config", "block_configs", "num_nextn_predict_layers", "mtp_num_hidden_layers",
                "num_kv_shared_layers", "multi_query", "word_embed_proj_dim", "attn_type_list", "moe_layers_enum",
                "interleave_moe_layer_step", "num_global_key_value_heads", "global_head_dim", "swa_head_dim",
                "swa_num_key_value_heads")
CASE_KEYS = ("num_blocks", "block_size", "enable_prefix_caching", "max_num_batched_tokens", "max_num_seqs", "max_model_len",
             "enable_chunked_prefill", "long_prefill_token_threshold", "reserve_full_isl", "watermark", "policy",
             "async_scheduling", "groups", "max_steps", "detail", "mode")
GOOD_VALUES = ("H100", "L4", "80GB", "auto", "fp8", "bfloat16", "16", "1", "2", "4096", "16k", "0.9", "Llama-3.1-8B",
               "Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-R1", "mooncake", "csv", "0:600", "prompt=a,output=b", "paged",
               "paged-prefix", "constant:20ms", "roofline", "0.33", "0.7.3", "first-fit", "10%", "none", "lru",
               "system:tokens=64", "constant:value=20", "poisson:rate=3", "profile:name=sharegpt", "swap", "-", "out.json",
               "fragmentation", "1/3", "full")
BAD_VALUES = ("", " ", "x", "-", "--", "\ud800", "a\nb", "\0", "\x1b[2J", "x" * 5000, "../..", "16q", "1e5k", "9" * 400 + "k",
              "1:2:3", "nan:inf", "5:1", "=", "a=,=b", "prompt=a,prompt=b", "constant:", "constant:nan", "constant:1e400s",
              "poisson:rate=0", "rag:tokens=1", "chat:turns=1", "system:tokens=1e9", "(((", ":" * 50, "lognormal:mean=(", "0/0",
              "1/0", "v0.33", "0.0.0", "999.999", "[1]", "{}", "null", "/dev/null", ".", "..", "CON", "\u202e", "\u0663")
