-- Counts how often the robot started the process of an attempt; 0 if its agent does not restart tasks.

-- +goose Up
ALTER TABLE attempts ADD COLUMN run_count BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE attempts DROP COLUMN run_count;
