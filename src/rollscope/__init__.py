"""Rollscope: record, keep, find, read and compare every rollout of RL training."""
